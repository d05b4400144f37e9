"""Authentication: SASL PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802, RFC 7677), the server's side.

    dialogue = users.begin("SCRAM-SHA-256")
    answer = dialogue.step(message)         raises Refused when the proof is wrong
    dialogue.user                           set once the client has shown who it is

A user that does not exist is led through the same messages as one that does, and fails at the same place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["MECHANISMS", "SCRAM_ITERATIONS", "Dialogue", "Users"]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_HASHES)
SCRAM_ITERATIONS = 4096  # the least that clients accept; the passwords are in the configuration, not in a stolen table
_NONCE_BYTES = 24


class Dialogue(Protocol):
    """The messages of one mechanism, one after the other."""

    user: str | None

    def step(self, message: bytes) -> bytes:
        """The answer to a message."""


@dataclass(frozen=True, slots=True)
class _Keys:
    salt: bytes
    stored_key: bytes
    server_key: bytes


class Users:
    """The names and passwords that are allowed in."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}
        self._keys = {
            (mechanism, name): _derive(algorithm, password)
            for mechanism, algorithm in _HASHES.items()
            for name, password in passwords.items()
        }
        self._secret = secrets.token_bytes(32)

    def begin(self, mechanism: str) -> Dialogue:
        """A new exchange; an unknown mechanism is refused."""
        if mechanism == "PLAIN":
            return _Plain(self)
        if mechanism in _HASHES:
            return _Scram(self, mechanism)
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"the mechanisms are {', '.join(MECHANISMS)}")

    def has(self, name: str, password: str) -> bool:
        expected = self._digests.get(name)
        is_equal = hmac.compare_digest(_digest(password), expected or self._secret)
        return is_equal and expected is not None

    def keys(self, mechanism: str, name: str) -> _Keys:
        """What proves a password; for unknown names something stable that nothing matches."""
        found = self._keys.get((mechanism, name))
        return found or _Keys(
            hmac.digest(self._secret, name.encode(), "sha256")[:16], secrets.token_bytes(64), self._secret
        )


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _derive(algorithm: str, password: str) -> _Keys:
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return _Keys(salt, hashlib.new(algorithm, client_key).digest(), hmac.digest(salted, b"Server Key", algorithm))


def _refused(message: str = "the user name or the password is wrong") -> Refused:
    return Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class _Plain:
    """One message: authorisation id, user and password with zero bytes between them."""

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self._users = users

    def step(self, message: bytes) -> bytes:
        parts = _text(message).split("\0")
        if len(parts) != 3:
            raise _refused("a PLAIN message has three parts")
        authorization, name, password = parts
        if not self._users.has(name, password) or authorization not in ("", name):
            raise _refused()
        self.user = name
        return b""


class _Scram:
    """Two messages: the client's name and nonce, then its proof."""

    def __init__(self, users: Users, mechanism: str) -> None:
        self.user: str | None = None
        self._users = users
        self._mechanism = mechanism
        self._algorithm = _HASHES[mechanism]
        self._first: _ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""

    def step(self, message: bytes) -> bytes:
        text = _text(message)
        return self._greet(text) if self._first is None else self._verify(text, self._first)

    def _greet(self, text: str) -> bytes:
        self._first = first = _ClientFirst.parse(text)
        self._nonce = first.nonce + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(self._users.keys(self._mechanism, first.name).salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={SCRAM_ITERATIONS}"
        return self._server_first.encode()

    def _verify(self, text: str, first: _ClientFirst) -> bytes:
        bare, _, proof_text = text.rpartition(",p=")
        fields = dict(part.partition("=")[::2] for part in bare.split(","))
        # Its end: older librdkafkas set their own nonce in front once more, and brokers have always let that pass.
        is_same = fields.get("r", "").endswith(self._nonce) and _decoded(fields.get("c", "")) == first.gs2.encode()
        keys = self._users.keys(self._mechanism, first.name)
        signed = f"{first.bare},{self._server_first},{bare}".encode()
        signature = hmac.digest(keys.stored_key, signed, self._algorithm)
        proof = _decoded(proof_text)
        if len(proof) != len(signature):
            raise _refused()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        shown = hashlib.new(self._algorithm, client_key).digest()
        if not hmac.compare_digest(shown, keys.stored_key) or not is_same:
            raise _refused()
        self.user = first.name
        return b"v=" + base64.b64encode(hmac.digest(keys.server_key, signed, self._algorithm))


@dataclass(frozen=True, slots=True)
class _ClientFirst:
    """`n,,n=user,r=nonce`: what the client says first, and its parts that are signed later."""

    gs2: str
    bare: str
    name: str
    nonce: str

    @classmethod
    def parse(cls, text: str) -> _ClientFirst:
        binding, _, rest = text.partition(",")
        authorization, _, bare = rest.partition(",")
        fields = bare.split(",")
        if binding not in ("n", "y") or len(fields) < 2 or fields[0][:2] != "n=" or fields[1][:2] != "r=":
            raise _refused("the first SCRAM message is malformed, or asks for channel binding")
        name = _name(fields[0][2:])
        if authorization and _name(authorization.removeprefix("a=")) != name:
            raise _refused("nobody may act for somebody else")
        if not fields[1][2:]:
            raise _refused("the first SCRAM message has no nonce")
        return cls(f"{binding},{authorization},", bare, name, fields[1][2:])


def _name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise _refused("the message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
