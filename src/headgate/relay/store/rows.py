"""The nouns of the store: an account with its repository, and a host."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headgate.relay.verdict import RepoState

__all__ = ["AccountRow", "HostRow", "HostStatus"]


class HostStatus(enum.StrEnum):
    """What a host is to the relay. The names are those of `listHosts`."""

    ACTIVE = "active"  # connected, or about to be
    IDLE = "idle"  # connected lately, failing now; retried soon
    OFFLINE = "offline"  # failed too often; retried now and then
    THROTTLED = "throttled"  # has more accounts than it may: the ones too many are not taken
    BANNED = "banned"


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account: where it lives, the last commit that was sent on, and its status at its host and here."""

    did: str
    host: str
    rev: str | None = None
    data: bytes | None = None
    head: bytes | None = None
    active: bool = True
    status: str | None = None
    local_status: str | None = None

    @property
    def state(self) -> RepoState:
        return RepoState(self.rev, self.data, self.active, self.status)

    @property
    def combined(self) -> tuple[bool, str | None]:
        """Whether it is active, and its status if not: what was decided here weighs more than what its host says."""
        if self.local_status is not None:
            return False, self.local_status
        return self.active, self.status


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host. `cursor` is the last of its seqs up to which all is dealt with; times are seconds since 1970."""

    hostname: str
    status: HostStatus = HostStatus.ACTIVE
    cursor: int = 0
    account_count: int = 0
    account_limit: int | None = None  # None: the relay's usual limit
    trusted: bool = False
    failures: int = 0
    last_seen: int = 0
    added_at: int = 0
