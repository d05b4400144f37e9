"""All that a login needs: the users, the mechanisms there are, and how long a failure waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.gateway.login import sasl
from headgate.gateway.login.patience import Patience
from headgate.gateway.login.users import Users

__all__ = ["Logins"]


@dataclass(frozen=True, slots=True)
class Logins:
    """What the handlers of SASL call."""

    users: Users
    patience: Patience = field(default_factory=Patience)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms that clients are told."""
        return sasl.MECHANISMS

    def begin(self, mechanism: str, address: str) -> sasl.Dialogue:
        """Return a new exchange with a client. Raises Refused for a mechanism that there is not."""
        return sasl.begin(self.users, mechanism, address)

    async def close(self) -> None:
        """Let go of threads."""
        self.users.close()
