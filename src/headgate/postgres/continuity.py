"""Whether what a server sends now follows, without a gap, on what was confirmed before. Pure; the reader asks.

The reader remembers whose slot it read and how far it told PostgreSQL to forget. Before anything is confirmed again,
the server, its timeline, its position and the slot's are compared with that memory:

- another system id or database is another history;
- a slot that is missing although it was used, or stands ahead of what we confirmed, was dropped, recreated or moved:
  the changes between are gone;
- a server behind what we confirmed, on the same timeline, was restored from a backup;
- a timeline that does not descend from ours is another branch. One that does, but left ours before the last
  transaction that we may have delivered, lacks transactions that consumers have seen.

All but the last are refused. After the last, the stream goes on, and consumers are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from headgate.model import ProtocolError, StateError
from headgate.wire.pgoutput import format_lsn, parse_lsn

__all__ = [
    "BEGIN_ANEW",
    "Gap",
    "Memory",
    "Now",
    "TimelineHistory",
    "WalPosition",
    "Witness",
    "judge",
    "position_of",
    "read_history",
    "remember",
]


# What helps once changes are lost; of a slot that cannot be read any more, after it was dropped.
BEGIN_ANEW = (
    "run `headgate reset PIPELINE` and start again (a bridge: start it with --reset); consumers are told of the gap, "
    "and take new snapshots"
)


class WalPosition(NamedTuple):
    """A place in the WAL. A later timeline comes behind an earlier one, whatever the LSNs."""

    timeline: int
    lsn: int


def position_of(offset: Mapping[str, int]) -> WalPosition:
    """The place that an offset of the Spark source names. One without a timeline lies on the server's own."""
    return WalPosition(int(offset.get("timeline", 0)), int(offset["lsn"]))


@dataclass(frozen=True, slots=True)
class TimelineHistory:
    """The timelines that led to the current one; `ends` has for each the LSN where the next one left it, in order."""

    current: int
    ends: tuple[tuple[int, int], ...] = ()

    def timeline_of(self, end_lsn: int) -> int:
        """The timeline on which a record that ends there was written."""
        return next((timeline for timeline, end in self.ends if end_lsn <= end), self.current)

    def end_of(self, timeline: int) -> int | None:
        """Where a timeline ends; None for the current one, and for one that is not in this history."""
        return next((end for known, end in self.ends if known == timeline), None)

    def knows(self, timeline: int) -> bool:
        return timeline in (0, self.current) or any(timeline == known for known, _ in self.ends)

    def here(self, position: WalPosition) -> int:
        """The LSN up to which this history has all that a position covers."""
        end = self.end_of(position.timeline)
        return position.lsn if end is None else min(position.lsn, end)


def read_history(current: int, content: bytes) -> TimelineHistory:
    """The answer to TIMELINE_HISTORY: a line for each earlier timeline with its number and the LSN where it ends."""
    ends = []
    try:
        for line in content.decode("utf-8", "replace").splitlines():
            words = line.partition("#")[0].split(None, 2)
            if words:
                ends.append((int(words[0]), parse_lsn(words[1])))
    except (ValueError, IndexError, ProtocolError):
        raise ProtocolError("the server's timeline history cannot be read", where="postgres") from None
    return TimelineHistory(current, tuple(ends))


class Witness(msgspec.Struct, frozen=True):
    """The newest transaction that is confirmed. A server that sends its place again must send this in it."""

    end_lsn: int
    xid: int


class Memory(msgspec.Struct, frozen=True):
    """Identity of the slot that was read, and the LSN that PostgreSQL was told is delivered."""

    system_id: str
    database_oid: int
    slot: str
    timeline: int
    confirmed_lsn: int
    began_lsn: int  # from here on nobody but us has moved the slot
    witness: Witness | None = None
    marked_lsn: int = 0  # of the newest gap marker; what lies before it is told already

    @property
    def confirmed(self) -> WalPosition:
        return WalPosition(self.timeline, self.confirmed_lsn)


@dataclass(frozen=True, slots=True)
class Now:
    """A server and the slot on it, as they are. `slot_lsn` is None if there is no slot."""

    slot: str
    system_id: str
    database_oid: int
    history: TimelineHistory
    server_lsn: int
    slot_lsn: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Why the stream does not follow on what was confirmed. `may_go_on`: nothing is missing, something is too much."""

    reason: str  # one word, for consumers: slot, timeline
    message: str
    may_go_on: bool = False

    def refusal(self, slot: str) -> StateError:
        return StateError(
            self.message,
            where=f"slot {slot}",
            remedy=f"nothing is read, since changes may be missing; if the right server is lost, {BEGIN_ANEW}",
        )


def judge(memory: Memory, now: Now, handed_lsn: int) -> Gap | None:
    """What is wrong, if anything. `handed_lsn` is the end of the newest transaction that may have been delivered."""
    return (
        _other_server(memory, now)
        or _other_branch(memory, now)
        or _other_slot(memory, now)
        or _lost_tail(memory, now, handed_lsn)
    )


def _other_server(memory: Memory, now: Now) -> Gap | None:
    if memory.slot != now.slot:
        return Gap("slot", f"the slot {memory.slot} was read into this directory before, not {now.slot}")
    if memory.system_id != now.system_id:
        return Gap("slot", f"this is another server: its system id is {now.system_id}, that of what was read before "
                   f"{memory.system_id}")  # fmt: skip
    if memory.database_oid != now.database_oid:
        return Gap("slot", "the database was dropped and made again, or is another one than was read before")
    return None


def _other_branch(memory: Memory, now: Now) -> Gap | None:
    if not now.history.knows(memory.timeline):
        return Gap(
            "timeline",
            f"the server is on timeline {now.history.current}, which does not descend from timeline "
            f"{memory.timeline} that was read before: an older server is back, or it was restored from a backup",
        )
    if memory.timeline == now.history.current and now.server_lsn < memory.confirmed_lsn:
        return Gap(
            "timeline",
            f"the server has written up to {format_lsn(now.server_lsn)} only, but "
            f"{format_lsn(memory.confirmed_lsn)} was delivered and confirmed before: it was restored from a backup",
        )
    return None


def _other_slot(memory: Memory, now: Now) -> Gap | None:
    if now.slot_lsn is None:
        return Gap(
            "slot",
            "the slot is gone, although changes were read from it: it was dropped, or this server took over "
            "from one that had it",
        )
    known = now.history.here(memory.confirmed)
    if now.slot_lsn > known:
        return Gap(
            "slot",
            f"the slot stands at {format_lsn(now.slot_lsn)}, but only {format_lsn(known)} was confirmed: somebody "
            "else moved it or made it anew, and the changes between are gone",
        )
    return None


def _lost_tail(memory: Memory, now: Now, handed_lsn: int) -> Gap | None:
    # What was confirmed while nothing came may be ahead of a standby, and nobody misses anything.
    confirmed_lsn = memory.witness.end_lsn if memory.witness else 0
    handed = WalPosition(memory.timeline, max(handed_lsn, confirmed_lsn))
    if now.history.here(handed) < handed.lsn:
        return Gap(
            "timeline",
            f"the server took over at {format_lsn(now.history.here(handed))} and never had the transactions up to "
            f"{format_lsn(handed.lsn)}, some of which were delivered",
            may_go_on=True,
        )
    return None


def remember(memory: Memory | None, now: Now) -> Memory:
    """What is known once the slot is ours and nothing stands in the way. Without a memory it begins here."""
    assert now.slot_lsn is not None
    if memory is None:
        timeline, lsn = now.history.current, now.slot_lsn
        return Memory(now.system_id, now.database_oid, now.slot, timeline, confirmed_lsn=lsn, began_lsn=lsn)
    confirmed_lsn = now.history.here(memory.confirmed)
    is_ours = memory.witness is not None and memory.witness.end_lsn <= confirmed_lsn
    return msgspec.structs.replace(
        memory,
        timeline=now.history.current,
        confirmed_lsn=confirmed_lsn,
        began_lsn=min(memory.began_lsn, confirmed_lsn),
        witness=memory.witness if is_ours else None,
    )
