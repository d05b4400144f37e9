"""Accounts as the last verdict left them, ahead of the store.

An event that is accepted changes its account at once for the next verdict, but the store may know of it only when the
event is safe: after a crash the store must not remember what no consumer got.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headgate.relay.ledger import DropReason
from headgate.relay.options import RelayOptions
from headgate.relay.store import AccountRow, HostStatus, Store
from headgate.relay.verdict import Accepted
from headgate.wire.atproto import Commit, Event, Sync, read_car

__all__ = ["Accounts"]


@dataclass(slots=True, eq=False)
class _Step:
    """A row, and whether the event that led to it is safe."""

    row: AccountRow
    safe: bool = False


class Accounts:
    """The rows of accounts, and the rules that are the relay's own."""

    def __init__(self, store: Store, options: RelayOptions) -> None:
        self._store, self._options = store, options
        self._ahead: dict[str, deque[_Step]] = {}

    async def load(self, dids: Iterable[str]) -> None:
        """Bring rows into memory, so that `get` finds them."""
        await self._store.load(did for did in dids if did not in self._ahead)

    def get(self, did: str) -> AccountRow | None:
        steps = self._ahead.get(did)
        return steps[-1].row if steps else self._store.known(did)

    def refusal(self, event: Event, host: str, row: AccountRow | None) -> DropReason | None:
        """Why an event that is sound is not sent on after all."""
        if row is not None and row.local_status is not None and isinstance(event, Commit | Sync):
            return DropReason.TAKEN_DOWN
        if (row is None or row.host != host) and not self._has_room(host):
            return DropReason.HOST_THROTTLED
        return None

    def _has_room(self, host: str) -> bool:
        """May the host have one more account? The first one too many marks it as throttled."""
        known = self._store.host(host)
        if known is None or known.account_count < self.limit(host):
            return True
        if known.status is HostStatus.ACTIVE:
            self._store.change_host(host, status=HostStatus.THROTTLED)
        return False

    def limit(self, host: str) -> int:
        known = self._store.host(host)
        if known is not None and known.account_limit is not None:
            return known.account_limit
        trusted = self._options.trusts(host) or (known is not None and known.trusted)
        return self._options.trusted_account_limit if trusted else self._options.account_limit

    def after(self, verdict: Accepted, host: str, row: AccountRow | None) -> AccountRow:
        """The account when the event has happened. An account that moved is counted at its new host."""
        old = row or AccountRow(verdict.frame.did, "")
        if old.host != host:
            self._count(old.host, -1)
            self._count(host, 1)
        state, event = verdict.state, verdict.event
        head = old.head
        if isinstance(event, Commit):
            head = event.commit
        elif isinstance(event, Sync):
            head = read_car(event.blocks).roots[0]
        return replace(
            old, host=host, rev=state.rev, data=state.data, head=head, active=state.active, status=state.status
        )

    def _count(self, host: str, change: int) -> None:
        known = self._store.host(host)
        if known is not None:
            self._store.change_host(host, account_count=max(0, known.account_count + change))

    def ahead(self, row: AccountRow) -> None:
        """The row that the next verdict goes by."""
        self._ahead.setdefault(row.did, deque()).append(_Step(row))

    def safe(self, row: AccountRow) -> None:
        """The event that led to this row is safe. The store gets it when all before it are, too."""
        steps = self._ahead[row.did]
        next(step for step in steps if step.row is row).safe = True
        while steps and steps[0].safe:
            self._store.put(steps.popleft().row)
        if not steps:
            del self._ahead[row.did]
