"""Login to a Kafka cluster, the client's side: SASL PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802, RFC 7677).

    steps = login_steps("SCRAM-SHA-512", user, password, nonce)
    message = next(steps)
    while True:
        answer = exchange(message)
        try:
            message = steps.send(answer)
        except StopIteration:
            break                     # the server has shown that it knows the password, too

A generator: it yields what to send and is sent what came back. Anything wrong raises `AuthError`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

from headgate.model import AuthError

__all__ = ["MECHANISMS", "login_steps"]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_HASHES)
_LEAST_ITERATIONS = 4096  # RFC 5802 section 5.1: fewer make a password easy to guess for whoever plays the server
_MOST_ITERATIONS = 1_000_000  # minutes of our time, should a server ask for more
_REMEDY = "check user, password and sasl_mechanism"


def login_steps(mechanism: str, user: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the client's messages of a mechanism; it is sent the server's. `nonce` is printable and without commas."""
    if mechanism == "PLAIN":
        return _plain(user, password)
    if mechanism in _HASHES:
        return _scram(_HASHES[mechanism], user, password, nonce)
    raise AuthError(f"no login by {mechanism}", remedy=f"set sasl_mechanism to one of {', '.join(MECHANISMS)}")


def _plain(user: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{user}\0{password}".encode()


def _scram(algorithm: str, user: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = _text((yield f"n,,{bare}".encode()))
    given = _fields(server_first)
    their_nonce, salt, iterations = given.get("r", ""), _decoded(given.get("s", "")), _count(given.get("i", ""))
    if not their_nonce.startswith(nonce) or len(their_nonce) <= len(nonce) or not salt:
        raise _broken("its first SCRAM message does not answer ours")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    final = f"c=biws,r={their_nonce}"  # biws is "n,," in base64: no channel binding
    signed = f"{bare},{server_first},{final}".encode()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    shown = _fields(_text((yield f"{final},p={proof}".encode())))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if "e" in shown or not hmac.compare_digest(_decoded(shown.get("v", "")), expected):
        raise _broken("it does not know the password")


def _count(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not _LEAST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise _broken(f"it asks for {text[:20]!r} iterations")
    return count


def _fields(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _broken("its SCRAM message is no text") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _broken(what: str) -> AuthError:
    return AuthError(f"the server is not to be trusted: {what}", remedy=_REMEDY)
