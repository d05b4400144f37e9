"""JSON web tokens (RFC 7519) as logins: checked with public keys, for one issuer and one audience.

Only the algorithms of the configuration count, which cannot name `none` or one with a shared secret; a token chooses
among the keys, never how they are used.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError

from headgate.gateway.health import Health
from headgate.gateway.login.jwks import Keyring
from headgate.gateway.options import OAuthOptions

__all__ = ["Claimed", "TokenRefusedError", "Tokens"]

_MOST_BYTES = 16 << 10
_MOST_NAME_BYTES = 255
_LONGEST_S = 366 * 86_400.0
_LEAST_S = 1.0  # of a token that counts only because clocks may differ


class TokenRefusedError(Exception):
    """The token is no login; the text says why, and has nothing in it that would be one."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The user that a token names, and until when it counts."""

    name: str
    lifetime_s: float


class Tokens:
    """Checks tokens."""

    def __init__(self, options: OAuthOptions, health: Health, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now
        self.keyring = Keyring(options, health)

    async def check(self, token: str) -> Claimed:
        """Return whom a token names. Raises TokenRefusedError."""
        if len(token) > _MOST_BYTES or token.count(".") != 2 or not token.isascii():
            raise TokenRefusedError("it is not a signed JSON web token of at most 16 KiB")
        await self.keyring.know(_kid(token))
        if not self.keyring.keys.keys:
            raise TimeoutError("the keys of tokens have not been fetched yet")
        try:
            claims = jwt.decode(token, self.keyring.keys, algorithms=list(self._options.algorithms)).claims
            self._rules().validate(claims)
        except JoseError as error:
            raise TokenRefusedError(
                f"{error.error}: {error.description}" if error.description else error.error
            ) from None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise TokenRefusedError(f"it cannot be read: {type(error).__name__}") from None
        return Claimed(_name(claims, self._options.principal_claim), self._lifetime_s(claims["exp"]))

    def _rules(self) -> jwt.JWTClaimsRegistry:
        options = self._options
        return jwt.JWTClaimsRegistry(
            now=int(self._now()),
            leeway=int(options.clock_skew_s),
            iss={"essential": True, "value": options.issuer},
            aud={"essential": True, "value": options.audience},
            exp={"essential": True},
        )

    def _lifetime_s(self, exp: Any) -> float:
        if not isinstance(exp, int | float) or isinstance(exp, bool) or not math.isfinite(exp):
            raise TokenRefusedError("its exp is not a time")
        return min(max(float(exp) - self._now(), _LEAST_S), _LONGEST_S)


def _name(claims: dict[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        raise TokenRefusedError(f"its {claim} is not a name of 1 to {_MOST_NAME_BYTES} bytes")
    if not name.isprintable():
        raise TokenRefusedError(f"its {claim} has characters that cannot be printed")
    return name


def _kid(token: str) -> str | None:
    """The key that a token says it is signed with; a token that says nonsense is refused later."""
    head = token.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        kid = header.get("kid")
    except (ValueError, AttributeError, RecursionError):
        return None
    return kid if isinstance(kid, str) else None
