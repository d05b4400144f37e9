"""SASL PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802, RFC 7677), the server's side.

    dialogue = begin(users, "SCRAM-SHA-256", address)
    answer = await dialogue.step(message)   raises Refused when the proof is wrong
    dialogue.user                           set once the client has shown who it is

A user that does not exist is led through the same messages as one that does, and fails at the same place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Protocol

from headgate.gateway.login.keys import ALGORITHMS, Keys
from headgate.gateway.login.users import Users
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["MECHANISMS", "Dialogue", "begin", "refused"]

MECHANISMS = ("PLAIN", *ALGORITHMS)
_NONCE_BYTES = 24
_MOST_BYTES = 64 << 10  # of one message
_MOST_NAME_BYTES = 255


class Dialogue(Protocol):
    """The messages of one mechanism, one after the other."""

    claimed: str  # whom the client says it is
    user: str | None  # whom it has shown to be
    mechanism: str | None  # of the row of kafka.users that says so; none for users of the configuration
    lifetime_s: float | None  # how long that counts, if what it has shown says so

    async def step(self, message: bytes) -> bytes:
        """Return the answer to a message. Raises Refused."""


def begin(users: Users, mechanism: str, address: str) -> Dialogue:
    """Return a new exchange. Raises Refused for a mechanism that there is not."""
    if mechanism == "PLAIN":
        return _Plain(users, address)
    if mechanism in ALGORITHMS:
        return _Scram(users, mechanism, address)
    raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"the mechanisms are {', '.join(MECHANISMS)}")


def refused(message: str = "the user name or the password is wrong") -> Refused:
    """Return what to raise when a login fails."""
    return Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class _Plain:
    """One message: authorisation id, user and password with zero bytes between them."""

    lifetime_s: float | None = None

    def __init__(self, users: Users, address: str) -> None:
        self.user: str | None = None
        self.claimed = ""
        self.mechanism: str | None = None
        self._users = users
        self._address = address

    async def step(self, message: bytes) -> bytes:
        parts = _text(message).split("\0")
        if len(parts) != 3:
            raise refused("a PLAIN message has three parts")
        authorization, name, password = parts
        self.claimed = _checked(name)
        if authorization not in ("", name) or not await self._is_right(name, password):
            raise refused()
        self.user = name
        return b""

    async def _is_right(self, name: str, password: str) -> bool:
        if self._users.is_configured(name):
            return self._users.is_password(name, password)
        keys = await self._users.proven(name, password, self._address)
        self.mechanism = keys.mechanism if keys else None
        return keys is not None


class _Scram:
    """Two messages: the client's name and nonce, then its proof."""

    lifetime_s: float | None = None

    def __init__(self, users: Users, mechanism: str, address: str) -> None:
        self.user: str | None = None
        self.claimed = ""
        self.mechanism: str | None = None
        self._users = users
        self._address = address
        self._mechanism = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._first: tuple[_ClientFirst, Keys] | None = None
        self._server_first = ""
        self._nonce = ""

    async def step(self, message: bytes) -> bytes:
        text = _text(message)
        if self._first is None:
            return await self._greet(_ClientFirst.parse(text))
        first, keys = self._first
        answer = self._verify(text, first, keys)
        if not await self._users.still(first.name, keys):
            raise refused()
        self.mechanism = None if self._users.is_configured(first.name) else self._mechanism
        self.user = first.name
        return answer

    async def _greet(self, first: _ClientFirst) -> bytes:
        self.claimed = _checked(first.name)
        keys = await self._users.keys(self._mechanism, first.name, self._address)
        self._first = first, keys
        self._nonce = first.nonce + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(keys.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={keys.iterations}"
        return self._server_first.encode()

    def _verify(self, text: str, first: _ClientFirst, keys: Keys) -> bytes:
        bare, _, proof_text = text.rpartition(",p=")
        fields = dict(part.partition("=")[::2] for part in bare.split(","))
        # Its end: older librdkafkas set their own nonce in front once more, and brokers have always let that pass.
        is_same = fields.get("r", "").endswith(self._nonce) and _decoded(fields.get("c", "")) == first.gs2.encode()
        signed = f"{first.bare},{self._server_first},{bare}".encode()
        signature = hmac.digest(keys.stored_key, signed, self._algorithm)
        proof = _decoded(proof_text)
        if len(proof) != len(signature):
            raise refused()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        shown = hashlib.new(self._algorithm, client_key).digest()
        if not hmac.compare_digest(shown, keys.stored_key) or not is_same:
            raise refused()
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
            raise refused("the first SCRAM message is malformed, or asks for channel binding")
        name = _name(fields[0][2:])
        if authorization and _name(authorization.removeprefix("a=")) != name:
            raise refused("nobody may act for somebody else")
        if not fields[1][2:]:
            raise refused("the first SCRAM message has no nonce")
        return cls(f"{binding},{authorization},", bare, name, fields[1][2:])


def _name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _checked(name: str) -> str:
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise refused(f"a user name has at most {_MOST_NAME_BYTES} bytes")
    return name


def _text(message: bytes) -> str:
    if len(message) > _MOST_BYTES:
        raise refused("the message is too long")
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise refused("the message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
