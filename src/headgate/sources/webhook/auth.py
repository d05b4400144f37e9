"""Authentication of senders: keys, and what of a request's headers may be kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

__all__ = ["client_of", "fingerprint", "idempotency_key", "public_headers"]

# Headers that prove something to somebody. They stay out of rows, whatever their prefix.
_SECRET = re.compile(r"auth|cookie|token|secret|signature|password|credential|api-?key|session|jwt|csrf")
_KEY_HEADERS = ("idempotency-key", "webhook-id", "x-github-delivery")
_SIGNED_KEY_HEADERS = ("webhook-id",)


def client_of(headers: Mapping[str, str], keys: Mapping[str, str]) -> str | None:
    """The name of the client whose key the request carries. Every key is compared, whichever fits."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = (token.strip() if scheme.lower() == "bearer" else "") or headers.get("x-api-key", "")
    found: str | None = None
    for name, secret in keys.items():
        if hmac.compare_digest(secret.encode(), given.encode()):
            found = name
    return found


def public_headers(headers: Mapping[str, str], signature_header: str | None) -> dict[str, str]:
    """The headers without whatever proves who the sender is."""
    hidden = signature_header.lower() if signature_header else ""
    return {name: value for name, value in headers.items() if name != hidden and not _SECRET.search(name)}


def idempotency_key(headers: Mapping[str, str], *, signed: bool) -> str:
    """What the sender calls this request. If its id is signed, only that counts: another could be made up."""
    names = _SIGNED_KEY_HEADERS if signed else _KEY_HEADERS
    return next((headers[name] for name in names if headers.get(name)), "")


def fingerprint(key: str, client: str | None, path: str) -> bytes:
    """A key belongs to its client and path: nobody can make a request of somebody else look like a repeat."""
    if not key:
        return b""
    digest = hashlib.blake2b(digest_size=16)
    for part in (client or "", path, key):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()
