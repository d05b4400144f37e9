"""All that a login needs: the users, the mechanisms there are, and how long a failure waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.gateway.health import Health
from headgate.gateway.login import sasl
from headgate.gateway.login.patience import Patience
from headgate.gateway.login.users import Users
from headgate.gateway.options import OAuthOptions
from headgate.model import DependencyError

if TYPE_CHECKING:
    from headgate.gateway.login.tokens import Tokens

__all__ = ["BEARER", "Logins", "token_checker"]

BEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Logins:
    """What the handlers of SASL call."""

    users: Users
    tokens: Tokens | None = None
    patience: Patience = field(default_factory=Patience)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms that clients are told."""
        return sasl.MECHANISMS if self.tokens is None else (*sasl.MECHANISMS, BEARER)

    def begin(self, mechanism: str, address: str) -> sasl.Dialogue:
        """Return a new exchange with a client. Raises Refused for a mechanism that there is not."""
        if mechanism == BEARER and self.tokens is not None:
            from headgate.gateway.login.bearer import Bearer

            return Bearer(self.tokens)
        return sasl.begin(self.users, mechanism, address)

    async def close(self) -> None:
        """Let go of threads."""
        self.users.close()


def token_checker(options: OAuthOptions | None, health: Health) -> Tokens | None:
    """Return what checks tokens, if they are to be. Raises DependencyError without the packages that it takes."""
    if options is None:
        return None
    try:
        from headgate.gateway.login.tokens import Tokens
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"tokens cannot be checked: the package {error.name} is not installed",
            where="gateway.oauth",
            remedy="pip install 'headgate[oauth]' ([all] installs everything)",
        ) from None
    return Tokens(options, health)
