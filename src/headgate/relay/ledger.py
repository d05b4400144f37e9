"""The books: what became of every frame, by host and reason, and why the events of an account were dropped.

They add up: received = accepted + dropped + ignored + pending. Of an account only the last few drops are kept, and
only of the accounts that had one lately.
"""

from __future__ import annotations

import enum
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice

from headgate.runtime.timings import Timings

__all__ = ["Drop", "DropReason", "HostBook", "Ledger"]

_DROPS_PER_DID = 20
_DIDS = 10_000
_MAX_DETAIL = 200
_MAX_DID = 2048


class DropReason(enum.StrEnum):
    """Reasons that are the relay's own; the others are `wire.atproto.Reason`."""

    REPEATED_SEQ = "repeated_seq"  # its number is not above the one before
    TAKEN_DOWN = "taken_down"  # this relay does not carry the account
    HOST_THROTTLED = "host_throttled"  # an account more than its host may have


@dataclass(frozen=True, slots=True)
class Drop:
    """One event that was not sent on."""

    at: float  # seconds since 1970
    did: str
    host: str
    seq: int
    kind: str
    reason: str
    detail: str


@dataclass(slots=True)
class HostBook:
    """The sums of a host, or of all."""

    received: int = 0
    received_bytes: int = 0
    accepted: int = 0
    ignored: int = 0  # of a kind that is no event, or of a later version of the protocol
    pending: int = 0  # being validated, waiting for a document, or for the log
    held: int = 0  # of the pending, those that wait for a document
    resynced: int = 0  # of the accepted, commits after a gap that went out as #sync
    dropped: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def balanced(self) -> bool:
        return self.received == self.accepted + self.ignored + self.pending + self.dropped.total()


class Ledger:
    """The books of all hosts. Those of a host begin when it is first seen and are kept while the relay runs."""

    def __init__(self) -> None:
        self.total = HostBook()
        self.validation = Timings()
        self._hosts: dict[str, HostBook] = {}
        self._drops: OrderedDict[str, deque[Drop]] = OrderedDict()

    def host(self, name: str) -> HostBook:
        book = self._hosts.get(name)
        if book is None:
            book = self._hosts[name] = HostBook()
        return book

    def hosts(self) -> dict[str, HostBook]:
        return dict(self._hosts)

    def received(self, host: str, size: int = 0) -> None:
        """A frame came in. It is pending until one of the following is said of it."""
        for book in (self.host(host), self.total):
            book.received += 1
            book.received_bytes += size
            book.pending += 1

    def ignored(self, host: str) -> None:
        for book in (self.host(host), self.total):
            book.ignored += 1
            book.pending -= 1

    def accepted(self, host: str, warnings: tuple[str, ...] = (), *, resynced: bool = False) -> None:
        for book in (self.host(host), self.total):
            book.accepted += 1
            book.pending -= 1
            book.resynced += resynced
            book.warnings.update(warnings)

    def abandoned(self, host: str) -> None:
        """A frame that was on its way when the relay stopped: it will come again."""
        for book in (self.host(host), self.total):
            book.received -= 1
            book.pending -= 1

    def held(self, host: str, count: int) -> None:
        for book in (self.host(host), self.total):
            book.held += count

    def dropped(self, host: str, reason: str, *, did: str = "", seq: int = 0, kind: str = "", detail: str = "") -> None:
        for book in (self.host(host), self.total):
            book.dropped[str(reason)] += 1
            book.pending -= 1
        if did:
            self._note(Drop(time.time(), did[:_MAX_DID], host, seq, kind, str(reason), detail[:_MAX_DETAIL]))

    def _note(self, drop: Drop) -> None:
        ring = self._drops.setdefault(drop.did, deque(maxlen=_DROPS_PER_DID))
        ring.append(drop)
        self._drops.move_to_end(drop.did)
        if len(self._drops) > _DIDS:
            self._drops.popitem(last=False)

    def why(self, did: str) -> list[Drop]:
        """The last events of an account that were dropped, and why; the latest first."""
        return list(reversed(self._drops.get(did, ())))

    def newest_drops(self, count: int) -> list[Drop]:
        """Return the last drop of each of the accounts that had one last; the latest first."""
        return [self._drops[did][-1] for did in islice(reversed(self._drops), count)]
