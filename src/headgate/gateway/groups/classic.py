"""Classic groups: the members agree on a leader, and the leader assigns the partitions.

    Empty ──join──> PreparingRebalance ──all have joined, or time is up──> CompletingRebalance
      ^                   ^      ^                                                 │
      │                   │      └──── a member joins, leaves or dies ────┐        │ the leader has sent
      └─ the last left ───┴───────────────────────────────────────────── Stable <──┘ the assignment

Joins wait until a generation is complete, syncs until the leader has assigned. Generations are stored when they begin
and when they are assigned, so that members live on through a restart of the coordinator. The bytes that members and
leader exchange are not read.

Static members (KIP-345) keep their place by their instance id: one that comes back takes the place over under a new
member id, and gets its old assignment without a rebalance. New members learn their id first and join with it then
(KIP-394), so that a join that is repeated does not leave a ghost.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Self
from uuid import uuid4

import msgspec

from headgate.gateway.groups.group import Client, Group, Member, Stored, Ticket
from headgate.gateway.groups.settings import GroupSettings
from headgate.gateway.groups.subscription import subscribed_topics
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["ClassicGroup", "ClassicMember", "Phase"]

_NAMES_ITSELF = 4  # JoinGroup's first version in which a new member joins twice, the second time with its id
_MAX_PREFIX = 200  # characters of a client's name that go into its member id
_MAY_SKIP = 9  # JoinGroup's first version in which a leader can be told not to assign


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


class ClassicGroup(Group[ClassicMember]):
    """A classic group, as a state machine."""

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

    # --- requests ---------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        """Enter the group, or enter its next generation. The answer may come later."""
        self._check_join(request)
        if request.member_id:
            self._join_again(request, client, ticket, now)
        elif request.group_instance_id in self._instances:
            self._replace(request, client, ticket, now)
        else:
            self._join_first(request, client, ticket, now)
        self._complete_if_ready(now)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """Cancel a join whose client has hung up. A new member is gone; others may come back in their session."""
        member_id = next((key for key, waiting in self._joining.items() if waiting is ticket), None)
        if member_id is None:
            return
        del self._joining[member_id]
        member = self.members[member_id]
        if member_id in self._newcomers:
            self._expel(member, now)
        else:
            self._see(member, now)
        self._complete_if_ready(now)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: float) -> None:
        """Wait for the assignment; the leader brings it."""
        member = self._find(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        named = (request.protocol_type or self.protocol_type, request.protocol_name or self.protocol)
        if named != (self.protocol_type, self.protocol):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {self.protocol!r}")
        if self.phase is Phase.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._see(member, now)
        if self.phase is Phase.STABLE:
            self._answer_sync(ticket, member)
            return
        self._unsynced.discard(member.member_id)
        self._park(self._syncing, member.member_id, ticket, SyncGroupResponse)
        if member.member_id == self.leader:
            self._assign({each.member_id: each.assignment for each in request.assignments}, now)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """A member lives. One that should join again is told so by `Refused`."""
        member = self._find(member_id, instance_id)
        self._check_generation(generation)
        self._see(member, now)
        if self.phase is Phase.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> None:
        """Go. An administrator may name a static member by its instance id alone."""
        if member_id in self._pending:
            del self._pending[member_id]
        else:
            named = self._instances.get(instance_id, "") if instance_id and not member_id else member_id
            self._expel(self._find(named, instance_id), now)
        self._complete_if_ready(now)

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int, now: float) -> None:
        if epoch < 0 and self.phase is Phase.EMPTY:
            return  # a consumer that assigns its partitions itself, or an administrator
        if epoch < 0 and not member_id and instance_id is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
        member = self._find(member_id, instance_id)
        self._check_generation(epoch)
        if self.phase is Phase.COMPLETING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._see(member, now)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Everybody may: members of classic groups ask before they know their generation."""

    def subscribed(self) -> set[str]:
        if self.protocol_type != "consumer":
            return set()
        return {
            topic for member in self.members.values() for topic in subscribed_topics(member.metadata(self.protocol))
        }

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

    # --- joining ----------------------------------------------------------------------------------------------------

    def _check_join(self, request: JoinGroupRequest) -> None:
        settings = self.settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise Refused(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"must be {settings.min_session_timeout_ms} to {settings.max_session_timeout_ms} ms",
            )
        if sum(len(each.name) + len(each.metadata) for each in request.protocols) > settings.max_member_bytes:
            raise Refused(ErrorCode.INVALID_REQUEST, "the subscription is too long")
        same = request.member_id or self._instances.get(request.group_instance_id or "")
        others = [member for key, member in self.members.items() if key != same]
        if not request.protocol_type or not request.protocols:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member needs a protocol type and a protocol")
        if others and request.protocol_type != self.protocol_type:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's type is {self.protocol_type!r}")
        if others and not _common(others) & {each.name for each in request.protocols}:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol that all members know")

    def _join_first(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        if len(self.members) + len(self._pending) >= self.settings.max_members:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self.settings.max_members} members are there")
        member_id = _new_id(request.group_instance_id or client.id)
        if request.group_instance_id is None and client.version >= _NAMES_ITSELF:
            self._pending[member_id] = now + request.session_timeout_ms / 1000
            required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            self._answers.append((ticket, required))
            return
        self._add(_member(request, member_id, client, self.settings), request.protocol_type, ticket, now)

    def _join_again(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        if self._pending.pop(request.member_id, None) is not None:
            member = _member(request, request.member_id, client, self.settings)
            self._add(member, request.protocol_type, ticket, now)
            return
        old = self._find(request.member_id, request.group_instance_id)
        member = _member(request, old.member_id, client, self.settings)
        is_same = old.protocols == member.protocols
        settled = self.phase is Phase.COMPLETING or (self.phase is Phase.STABLE and old.member_id != self.leader)
        if settled and is_same:
            # The member did not get its answer, or joins again without need.
            self._see(old, now)
            self._answers.append((ticket, self._joined(old)))
            return
        member.assignment = old.assignment
        self._put(member)
        self._now_at.protocol_type = request.protocol_type
        self._park(self._joining, member.member_id, ticket, JoinGroupResponse)
        self._see(member, now)
        if self.phase is not Phase.PREPARING:
            self._prepare(now)

    def _add(self, member: ClassicMember, protocol_type: str, ticket: Ticket, now: float) -> None:
        self._put(member)
        self._newcomers.add(member.member_id)
        self._now_at.protocol_type = protocol_type
        self._joining[member.member_id] = ticket
        self._see(member, now)
        if self.phase is not Phase.PREPARING:
            self._prepare(now)
        elif self._gather_until is not None:
            self._gather_until = min(now + self.settings.initial_rebalance_delay_s, self._join_by)

    def _replace(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        """A static member comes back: it takes its place over from the process it was before."""
        old = self.members[self._instances[request.group_instance_id or ""]]
        member = _member(request, _new_id(request.group_instance_id or ""), client, self.settings)
        member.assignment = old.assignment
        old_leader = self.leader
        for waiting, response in ((self._joining, JoinGroupResponse), (self._syncing, SyncGroupResponse)):
            self._refuse(waiting, old.member_id, response, ErrorCode.FENCED_INSTANCE_ID)
        self._unsynced.discard(old.member_id)
        self.members = {key: each for key, each in self.members.items() if key != old.member_id}
        self._touched.add(old.member_id)
        self._deadlines.pop(old.member_id, None)
        self._put(member)
        self._see(member, now)
        if old_leader == old.member_id:
            self._now_at.leader = member.member_id
        if self.phase is Phase.STABLE and self._select() == self.protocol:
            self._is_unsaved = True
            self._answers.append((ticket, self._joined_again(member, old_leader, client.version)))
            return
        self._joining[member.member_id] = ticket
        if self.phase is not Phase.PREPARING:
            self._prepare(now)

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
        common = _common(self.members.values())
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return max(sorted(votes), key=votes.__getitem__)

    # --- small things -----------------------------------------------------------------------------------------------

    def _patience_s(self) -> float:
        """How long a rebalance may take: as long as the most patient member allows."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0) / 1000

    def _see(self, member: ClassicMember, now: float) -> None:
        self._deadlines[member.member_id] = now + member.session_timeout_ms / 1000

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the group is at generation {self.generation}")

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

    def _joined_again(self, member: ClassicMember, old_leader: str | None, version: int) -> JoinGroupResponse:
        """For a static member that came back. A leader must not assign anew: nobody else would learn of it.

        One that cannot be told to skip that is told that its former self leads.
        """
        joined = self._joined(member)
        if member.member_id != self.leader:
            return joined
        if version >= _MAY_SKIP:
            return msgspec.structs.replace(joined, skip_assignment=True)
        return msgspec.structs.replace(joined, leader=old_leader, members=())

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


def _common(members: Iterable[ClassicMember]) -> set[str]:
    """The protocols that all of them know."""
    return set.intersection(*({name for name, _ in member.protocols} for member in members))


def _new_id(prefix: str) -> str:
    return f"{prefix[:_MAX_PREFIX]}-{uuid4()}"


def _member(request: JoinGroupRequest, member_id: str, client: Client, settings: GroupSettings) -> ClassicMember:
    patience = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    return ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=client.id,
        client_host=client.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=min(patience, settings.max_rebalance_timeout_ms),
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
    )
