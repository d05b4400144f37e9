"""Tickets: what a page in a browser shows instead of the token, which it must not have.

A browser's EventSource sends no headers of its own choice. So the program that has the token asks for a ticket,
`POST /tickets`, and hands it to the page, which opens the stream with it: in the address, or in a cookie that the
program sets. A ticket is good for some topics and for a while, and any process with the same token knows it: it is
signed, and kept nowhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence

__all__ = ["COOKIE", "issue", "opens"]

COOKIE = "headgate_ticket"
_MOST_CHARS = 32_768  # a ticket for many topics with long names


def issue(token: str, topics: Sequence[str], expires_at_s: int) -> str:
    """A ticket for these topics and no others."""
    claim = _encoded(json.dumps([expires_at_s, sorted(set(topics))], separators=(",", ":")).encode())
    return f"{claim}.{_signature(token, claim)}"


def opens(ticket: str, token: str, topics: Sequence[str], now_s: float) -> bool:
    """Whether a ticket is ours, not too old, and for all of these topics."""
    claim, _, signature = ticket.partition(".")
    if len(ticket) > _MOST_CHARS or not hmac.compare_digest(signature.encode(), _signature(token, claim).encode()):
        return False
    try:
        expires_at_s, allowed = json.loads(base64.urlsafe_b64decode(claim + "=" * (-len(claim) % 4)))
    except (ValueError, binascii.Error):
        return False
    return now_s < expires_at_s and set(topics) <= set(allowed)


def _signature(token: str, claim: str) -> str:
    # With a name in it, so that nothing else that is signed with the token can pass for a ticket.
    return _encoded(hmac.digest(token.encode(), f"headgate ticket {claim}".encode(), hashlib.sha256))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
