"""From one generation of a classic group to the next: who waits, what ends the wait, and what is answered then.

    Empty ──join──> PreparingRebalance ──all have joined, or time is up──> CompletingRebalance
      ^                   ^      ^                                                 │
      │                   │      └──── a member joins, leaves or dies ────┐        │ the leader has sent
      └─ the last left ───┴───────────────────────────────────────────── Stable <──┘ the assignment

Joins wait until a generation is complete, syncs until the leader has assigned. Generations are stored when they begin
and when they are assigned, so that members live on through a restart of the coordinator. What members ask for is in
`classic`; here is what becomes of the group. docs/gateway.md has all states and events as a table, which is tested.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Self

import msgspec

from headgate.gateway.groups.group import Group, Member, Stored, Ticket
from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    JoinedMember,
    JoinGroupResponse,
    SyncGroupResponse,
)

__all__ = ["ClassicMember", "Generations", "Phase", "common_protocols"]


class Phase(enum.StrEnum):
    """The states, by the names that the protocol has for them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicMember(Member, kw_only=True):
    """A member, with its subscription for each protocol that it knows, and its assignment."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")


class _Head(msgspec.Struct):
    phase: Phase = Phase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None


class Generations(Group[ClassicMember]):
    """The part of a classic group that rebalances."""

    kind = "classic"

    def __init__(self, settings: GroupSettings, *, generation: int = 0) -> None:
        super().__init__(settings)
        self._now_at = _Head(generation=generation)
        self._joining: dict[str, Ticket] = {}
        self._syncing: dict[str, Ticket] = {}
        self._newcomers: set[str] = set()  # members that no generation has had yet
        self._unsynced: set[str] = set()
        self._pending: dict[str, float] = {}  # ids given to members that have not joined with them yet, until when
        self._join_by = 0.0
        self._gather_until: float | None = None
        self._sync_by = 0.0

    @classmethod
    def load(cls, settings: GroupSettings, stored: Stored, now: float) -> Self:
        """The group as it was stored. Its members have a whole session to find their new coordinator."""
        group = cls(settings)
        group._now_at = msgspec.json.decode(stored.head, type=_Head)
        for row in stored.members:
            member = msgspec.json.decode(row, type=ClassicMember)
            group._put(member)
            group._see(member, now)
        group._touched.clear()
        if group.phase is Phase.COMPLETING:
            group._unsynced = set(group.members)
            group._sync_by = now + group._patience_s()
        return group

    @property
    def phase(self) -> Phase:
        return self._now_at.phase

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def generation(self) -> int:
        return self._now_at.generation

    @property
    def protocol_type(self) -> str:
        return self._now_at.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._now_at.protocol

    @property
    def leader(self) -> str | None:
        return self._now_at.leader

    @property
    def is_assigned(self) -> bool:
        return self.phase is Phase.STABLE

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self._pending

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self._pending = {key: until for key, until in self._pending.items() if until > now}
        for member in self._overdue(now):
            # Who waits for an answer cannot send heartbeats.
            if member.member_id not in self._joining and member.member_id not in self._syncing:
                self._expel(member, now)
        if self.phase is Phase.COMPLETING and now >= self._sync_by:
            for member_id in [key for key in self.members if key in self._unsynced]:
                self._expel(self.members[member_id], now)
        self._complete_if_ready(now)

    def next_deadline(self) -> float | None:
        waiting = self._joining.keys() | self._syncing.keys()
        times = [until for key, until in self._deadlines.items() if key not in waiting]
        times += self._pending.values()
        if self.phase is Phase.PREPARING:
            times.append(min(self._join_by, self._gather_until or self._join_by))
        if self.phase is Phase.COMPLETING:
            times.append(self._sync_by)
        return min(times, default=None)

    def waiting(self) -> list[Ticket]:
        return [*self._joining.values(), *self._syncing.values()]

    # --- generations ------------------------------------------------------------------------------------------------

    def _prepare(self, now: float) -> None:
        """Begin a rebalance: every member has to join again."""
        for member_id in list(self._syncing):
            self._refuse(self._syncing, member_id, SyncGroupResponse, ErrorCode.REBALANCE_IN_PROGRESS)
        self._unsynced.clear()
        self._join_by = now + self._patience_s()
        is_first = self.phase is Phase.EMPTY
        self._gather_until = now + self.settings.initial_rebalance_delay_s if is_first else None
        self._now_at.phase = Phase.PREPARING

    def _complete_if_ready(self, now: float) -> None:
        if self.phase is not Phase.PREPARING:
            return
        if self._gather_until is not None and now >= self._gather_until:
            self._gather_until = None
        everyone = not self._pending and self.members.keys() == self._joining.keys()
        if now >= self._join_by or not self.members or (everyone and self._gather_until is None):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with those who have joined; static members may be late."""
        for member in [each for key, each in self.members.items() if key not in self._joining]:
            if member.instance_id is None:
                self._drop(member)
        if self.members and not self._joining:
            self._join_by = now + self._patience_s()
            return
        head = self._now_at
        head.generation = head.generation % 0x7FFFFFFF + 1
        self._gather_until = None
        self._newcomers.clear()
        self._is_unsaved = True
        if not self.members:
            head.phase, head.protocol, head.leader = Phase.EMPTY, None, None
            return
        if head.leader not in self._joining:
            head.leader = next(key for key in self.members if key in self._joining)
        head.phase, head.protocol = Phase.COMPLETING, self._select()
        self._unsynced = set(self.members)
        self._sync_by = now + self._patience_s()
        self._touched.update(self.members)
        for member_id, ticket in self._joining.items():
            self._see(self.members[member_id], now)
            self._answers.append((ticket, self._joined(self.members[member_id])))
        self._joining.clear()

    def _assign(self, assignments: dict[str, bytes], now: float) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._now_at.phase = Phase.STABLE
        self._unsynced.clear()
        self._touched.update(self.members)
        self._is_unsaved = True
        for member_id, ticket in self._syncing.items():
            self._see(self.members[member_id], now)
            self._answer_sync(ticket, self.members[member_id])
        self._syncing.clear()

    def _expel(self, member: ClassicMember, now: float) -> None:
        self._refuse(self._joining, member.member_id, JoinGroupResponse, ErrorCode.UNKNOWN_MEMBER_ID)
        self._refuse(self._syncing, member.member_id, SyncGroupResponse, ErrorCode.UNKNOWN_MEMBER_ID)
        self._unsynced.discard(member.member_id)
        self._drop(member)
        if self.phase in (Phase.STABLE, Phase.COMPLETING):
            self._prepare(now)

    def _select(self) -> str:
        """The protocol that most members like best among those that all of them know."""
        common = common_protocols(self.members.values())
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return max(sorted(votes), key=votes.__getitem__)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _park(
        self,
        waiting: dict[str, Ticket],
        member_id: str,
        ticket: Ticket,
        response: type[JoinGroupResponse] | type[SyncGroupResponse],
    ) -> None:
        """Let a request wait. One that was waiting is a repetition of it, and nobody reads its answer any more."""
        self._refuse(waiting, member_id, response, ErrorCode.REBALANCE_IN_PROGRESS)
        waiting[member_id] = ticket

    def _refuse(
        self,
        waiting: dict[str, Ticket],
        member_id: str,
        response: type[JoinGroupResponse] | type[SyncGroupResponse],
        code: ErrorCode,
    ) -> None:
        ticket = waiting.pop(member_id, None)
        if ticket is not None:
            self._answers.append((ticket, response(error_code=code)))

    def _answer_sync(self, ticket: Ticket, member: ClassicMember) -> None:
        answer = SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )
        self._answers.append((ticket, answer))

    def _joined(self, member: ClassicMember) -> JoinGroupResponse:
        is_leader = member.member_id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=self._roll() if is_leader else (),
        )

    def _roll(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(self.protocol),
            )
            for each in self.members.values()
        )

    def _head(self) -> bytes:
        return msgspec.json.encode(self._now_at)

    def _patience_s(self) -> float:
        """How long a rebalance may take: as long as the most patient member allows."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0) / 1000

    def _see(self, member: ClassicMember, now: float) -> None:
        self._deadlines[member.member_id] = now + member.session_timeout_ms / 1000


def common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """The protocols that all of them know."""
    return set.intersection(*({name for name, _ in member.protocols} for member in members))
