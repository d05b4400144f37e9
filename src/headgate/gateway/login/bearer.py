"""SASL OAUTHBEARER (RFC 7628), the server's side."""

from __future__ import annotations

import json

from headgate.gateway.login.sasl import refused
from headgate.gateway.login.tokens import TokenRefusedError, Tokens

__all__ = ["Bearer"]

_MOST_BYTES = 64 << 10
_END = "\x01"


class Bearer:
    """One message with a token. If that is refused the answer is JSON that says so, and the next message ends it."""

    mechanism: str | None = None

    def __init__(self, tokens: Tokens) -> None:
        self.user: str | None = None
        self.claimed = ""
        self.lifetime_s: float | None = None
        self._tokens = tokens
        self._refusal: str | None = None

    async def step(self, message: bytes) -> bytes:
        """Return the answer to a message. Raises Refused."""
        if self._refusal is not None:
            raise refused(self._refusal)
        authorization, token = _parts(message)
        try:
            claimed = await self._tokens.check(token)
        except TokenRefusedError as error:
            self._refusal = f"the token is refused: {error}"
            return json.dumps({"status": "invalid_token"}).encode()
        self.claimed = claimed.name
        if authorization not in ("", claimed.name):
            raise refused("nobody may act for somebody else")
        self.user, self.lifetime_s = claimed.name, claimed.lifetime_s
        return b""


def _parts(message: bytes) -> tuple[str, str]:
    """Whom the client says it is, if it does, and its token: `n,a=NAME,^Aauth=Bearer TOKEN^A^A`."""
    if len(message) > _MOST_BYTES:
        raise refused("the message is too long")
    try:
        header, *pairs = bytes(message).decode().split(_END)
    except UnicodeDecodeError:
        raise refused("the message is not UTF-8") from None
    flags = header.split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs if pair)
    scheme, _, token = values.get("auth", "").partition(" ")
    if len(flags) != 3 or flags[0] not in ("n", "y") or flags[2] or pairs[-2:] != ["", ""]:
        raise refused("the OAUTHBEARER message is malformed")
    if scheme.lower() != "bearer" or not token.strip():
        raise refused("the OAUTHBEARER message has no token")
    if flags[1] and not flags[1].startswith("a="):
        raise refused("the OAUTHBEARER message is malformed")
    name = flags[1].removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return name, token.strip()
