"""How far each host has been read, and how far all of it has been dealt with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from headgate.relay.limits import HostBudget
from headgate.relay.options import HoldLimits
from headgate.relay.resolve import Resolved
from headgate.relay.verdict import RepoState
from headgate.wire.atproto import Kind

__all__ = ["HostRead", "Item", "Room", "Track"]

_ITEM_BYTES = 1_000  # what an event costs beyond its bytes: its place in lists, and its lane


@dataclass(slots=True, eq=False)
class Item:
    """A frame on its way, as its bytes: decoded, it can take sixty times as much memory, and most of them only wait.

    `arrived` is by the resolver's clock, so that a document can be told to be newer.
    """

    host: str
    kind: Kind
    did: str
    seq: int
    message: bytes
    arrived: float
    round: int
    found: Resolved | None = None
    state: RepoState | None = None  # what it was last judged by

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return len(self.message) + _ITEM_BYTES


class HostRead(msgspec.Struct):
    """What of a host was dealt with when a relay ended: all up to `last` but for those `pending`, and those `later`."""

    last: int = 0
    pending: set[int] = msgspec.field(default_factory=set)
    later: set[int] = msgspec.field(default_factory=set)

    def has(self, seq: int) -> bool:
        return (seq <= self.last and seq not in self.pending) or seq in self.later

    @property
    def end(self) -> int:
        return max(self.last, max(self.later, default=0))


@dataclass(slots=True)
class Track:
    """One host's numbers.

    `last` was read; up to `cursor` all is dealt with: sent on for good, dropped or ignored. When a host begins to count
    anew, so does the track, and what is still on its way from the round before no longer matters to the cursor.
    """

    last: int = 0
    round: int = 0
    pending: dict[Item, None] = field(default_factory=dict)
    events: int = 0
    bytes: int = 0
    read_before: HostRead | None = None  # by the relay that ended before this one began
    budget: HostBudget | None = None  # None: there are no limits

    @property
    def cursor(self) -> int:
        first = next(iter(self.pending), None)
        return self.last if first is None else first.seq - 1

    @property
    def read(self) -> HostRead:
        """To be kept, for a relay that begins after this one."""
        pending = {item.seq for item in self.pending}
        known = self.read_before
        if known is None or known.end <= self.last:
            return HostRead(self.last, pending)
        later = {seq for seq in known.later if seq > self.last}
        if known.last <= self.last:
            return HostRead(self.last, pending, later)
        return HostRead(known.last, pending | {seq for seq in known.pending if seq > self.last}, later)

    def was_read(self, seq: int) -> bool:
        """Whether the relay that ended before had dealt with it. The cursor goes on."""
        known = self.read_before
        if known is None:
            return False
        if seq > known.end:
            self.read_before = None
            return False
        if not known.has(seq):
            return False
        self.last = max(self.last, seq)
        return True

    def restart(self, last: int) -> None:
        self.last = last
        self.read_before = None
        self.round += 1
        self.pending = {}

    def done(self, item: Item) -> None:
        if item.round == self.round:
            self.pending.pop(item, None)


class Room:
    """Bounds what is on its way, by count and bytes, per host and in all. Whoever would exceed it waits.

    When all together is too much, a host with nothing on its way still gets one event in: hosts that fill the relay
    with what nobody can resolve slow the others down, but do not stop them. A host has one reader, so one that waits.
    """

    def __init__(self, limits: HoldLimits) -> None:
        self._limits = limits
        self.events = 0
        self.bytes = 0
        self._waiting: dict[int, tuple[Track, int, asyncio.Future[None]]] = {}

    def fits(self, track: Track, size: int) -> bool:
        if track.events == 0:
            return True
        limits = self._limits
        own = track.events < limits.host_events and track.bytes + size <= limits.host_bytes
        return own and self.events < limits.events and self.bytes + size <= limits.bytes

    async def enter(self, track: Track, size: int) -> None:
        while not self.fits(track, size):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[id(track)] = (track, size, waiting)
            try:
                await waiting
            finally:
                self._waiting.pop(id(track), None)
        self._add(track, 1, size)

    def leave(self, track: Track, size: int) -> None:
        """Make room. It is for the same host first, which has no other to wait for; then for whoever waits longest."""
        self._add(track, -1, -size)
        own = self._waiting.get(id(track))
        if own is not None and self._wake(*own):
            return
        for other in self._waiting.values():
            if self._wake(*other):
                return

    def _wake(self, track: Track, size: int, waiting: asyncio.Future[None]) -> bool:
        if waiting.done() or not self.fits(track, size):
            return False
        waiting.set_result(None)
        return True

    def _add(self, track: Track, events: int, size: int) -> None:
        track.events += events
        track.bytes += size
        self.events += events
        self.bytes += size
