"""Access control of the registry: names and passwords, and no web pages.

A page in a browser is a client that its user did not choose, so one of another origin is refused. Without users only
addresses are answered to: a name may be pointed at this machine by anybody.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from starlette.requests import Request

from headgate.registry.errors import RefusedError
from headgate.runtime.access import is_foreign_host, is_foreign_origin

__all__ = ["check_access"]

_MOST_CHARS = 4096


def check_access(request: Request, users: Mapping[str, str]) -> None:
    """Raise RefusedError unless whoever asks may come in."""
    headers = request.headers
    host = headers.get("host")
    if is_foreign_origin(headers.get("origin"), host):
        raise RefusedError(403, "requests from other web pages are refused")
    if not users:
        if is_foreign_host(host):
            raise RefusedError(403, "without users this server answers to addresses only: ask for 127.0.0.1")
        return
    if not _is_known(headers.get("authorization", ""), users):
        raise RefusedError(401, "Unauthorized")


def _is_known(authorization: str, users: Mapping[str, str]) -> bool:
    """All users are compared, so that the time that it takes tells nobody's name."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic" or len(encoded) > _MOST_CHARS:
        return False
    try:
        given = base64.b64decode(encoded.strip(), validate=True)
    except (ValueError, binascii.Error):
        return False
    return sum(hmac.compare_digest(given, f"{name}:{password}".encode()) for name, password in users.items()) > 0
