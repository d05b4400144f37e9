"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, each member follows at its own pace.

Three epochs make it safe. The *group epoch* grows when members or topics change. The *target epoch* is that of the
assignment that was computed last. A member's own epoch says which target it has reached; it gets there in two steps:

    1. it is told what it keeps, and stays at its epoch until it says that it has let go of the rest;
    2. it gets the target's epoch, and of its new partitions those that nobody else holds any more.

So a partition never has two owners, and a commit with an old epoch is recognised. Members that change nothing only
refresh their deadline: their heartbeats cost no write. docs/gateway.md has the states of a group as a table.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from uuid import UUID, uuid4

import msgspec

from headgate.gateway.groups.assignors import ASSIGNORS, Partition, Want
from headgate.gateway.groups.group import Client, Group, Member, Stored, Ticket
from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import (
    AssignedTopic,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["ConsumerGroup", "ConsumerMember", "Topics"]

_JOINS, _LEAVES, _AWAY = 0, -1, -2  # what a member's epoch can mean; a static member that is away will come back
_COMMITS_SINCE = 9  # OffsetCommit's first version that knows member epochs


@dataclass(frozen=True, slots=True)
class Topics:
    """What the machine may know of the log: a topic's id and partition count by name, and what expressions match."""

    find: Callable[[str], tuple[UUID, int] | None]
    matches: Mapping[str, frozenset[str]]


class Step(enum.StrEnum):
    """Where a member is on its way to the target."""

    STABLE = "stable"
    REVOKING = "revoking"  # it still holds partitions that it should let go
    WAITING = "waiting"  # others still hold partitions that it should get


class ConsumerMember(Member, kw_only=True):
    """A member: what it wants, what it has, what it lets go, and what it should have."""

    rack_id: str | None = None
    rebalance_timeout_ms: int
    names: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    step: Step = Step.STABLE
    assigned: frozenset[Partition] = frozenset()
    revoking: frozenset[Partition] = frozenset()
    target: frozenset[Partition] = frozenset()

    @property
    def is_away(self) -> bool:
        return self.epoch == _AWAY


class _Head(msgspec.Struct):
    epoch: int = 0
    target_epoch: int = 0
    topics: dict[str, tuple[UUID, int]] = {}  # as they were when the target was computed


class ConsumerGroup(Group[ConsumerMember]):
    """A consumer group, as a state machine."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, settings: GroupSettings, *, epoch: int = 0) -> None:
        super().__init__(settings)
        self._at = _Head(epoch, epoch)
        self._owners: dict[Partition, str] = {}
        self._revoke_by: dict[str, float] = {}
        self._is_outdated = False  # members have changed since the epoch was raised last

    @classmethod
    def load(cls, settings: GroupSettings, stored: Stored, now: float) -> Self:
        """The group as it was stored. Its members have a whole session to find their new coordinator."""
        group = cls(settings)
        group._at = msgspec.json.decode(stored.head, type=_Head)
        for row in stored.members:
            member = msgspec.json.decode(row, type=ConsumerMember)
            group._put(member)
            group._own(member)
            group._see(member, now)
            if member.step is Step.REVOKING:
                group._revoke_by[member.member_id] = now + member.rebalance_timeout_ms / 1000
        group._touched.clear()
        return group

    @property
    def generation(self) -> int:
        return self._at.epoch

    @property
    def target_epoch(self) -> int:
        return self._at.target_epoch

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self._at.epoch > self._at.target_epoch:
            return "Assigning"
        is_there = all(each.step is Step.STABLE and each.epoch == self._at.target_epoch for each in self._present())
        return "Stable" if is_there else "Reconciling"

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor)
        return max(sorted(votes), key=votes.__getitem__) if votes else next(iter(ASSIGNORS))

    @property
    def regexes(self) -> set[str]:
        return {each.regex for each in self.members.values() if each.regex}

    # --- requests ---------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, topics: Topics, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Enter the group, live in it, or leave it."""
        if request.member_epoch < _JOINS:
            return self._leave(request, now)
        member = self._enter(request, client) if request.member_epoch == _JOINS else self._recognise(request)
        self._see(member, now)
        self._update(member, request)
        self.refresh(topics)
        before, reported = member.assigned, _reported(request)
        self._reconcile(member, reported, now)
        # An answer may have been lost: a member that is behind, or reports something else, is told again.
        is_told = request.member_epoch != member.epoch or (reported is not None and reported != member.assigned)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self.settings.consumer_heartbeat_interval_s * 1000),
            assignment=_to_wire(member.assigned) if is_told or before != member.assigned else None,
        )

    def refresh(self, topics: Topics) -> None:
        """Compute the target anew if topics, or members, have changed since."""
        seen = {name: found for name in sorted(self._wanted(topics)) if (found := topics.find(name))}
        if self._is_outdated or seen != self._at.topics:
            self._at.topics = seen
            self._at.epoch += 1
            self._is_outdated = False
            self._is_unsaved = True
        if self._at.epoch > self._at.target_epoch:
            self._retarget(topics)

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int, now: float) -> None:
        if epoch < 0 and self.is_empty:
            return  # a consumer that assigns its partitions itself, or an administrator
        member = self._find(member_id, instance_id)
        if version < _COMMITS_SINCE:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, "members of consumer groups commit with version 9 or newer")
        self._check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return  # an administrator
        self._check_epoch(self._find(member_id or "", None), epoch)

    def subscribed(self) -> set[str]:
        return set(self._at.topics)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        late = [key for key, until in self._revoke_by.items() if until <= now]
        for member in [*self._overdue(now), *(self.members[key] for key in late)]:
            if member.member_id in self.members:
                self._expel(member)

    def next_deadline(self) -> float | None:
        return min((*self._deadlines.values(), *self._revoke_by.values()), default=None)

    def waiting(self) -> list[Ticket]:
        return []  # every heartbeat is answered at once

    # --- coming and going -------------------------------------------------------------------------------------------

    def _enter(self, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
        if request.rebalance_timeout_ms < 0 or request.topic_partitions:
            raise Refused(ErrorCode.INVALID_REQUEST, "who joins needs a rebalance timeout and owns nothing")
        if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
            raise Refused(ErrorCode.INVALID_REQUEST, "who joins needs a subscription")
        member_id = request.member_id or str(uuid4())
        if request.instance_id is not None and request.instance_id in self._instances:
            self._take_over(request.instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            member = self._new(request, member_id)
        member.client_id, member.client_host = client.id, client.host
        return member

    def _new(self, request: ConsumerGroupHeartbeatRequest, member_id: str) -> ConsumerMember:
        if len(self.members) >= self.settings.max_members:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self.settings.max_members} members are there")
        self._check_assignor(request.server_assignor)
        member = ConsumerMember(member_id=member_id, instance_id=request.instance_id, rebalance_timeout_ms=0)
        self._put(member)
        self._is_outdated = True
        return member

    def _take_over(self, instance_id: str, member_id: str) -> None:
        """A static member comes back, with its old assignment, if its old self has said that it goes."""
        old = self.members[self._instances[instance_id]]
        if old.member_id == member_id:
            return
        if not old.is_away:
            raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id!r} is still a member")
        self._disown(old)
        self._drop(old)
        member = msgspec.structs.replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self._put(member)
        self._own(member)
        self._changed(member)

    def _recognise(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        member = self._find(request.member_id, request.instance_id)
        if request.member_epoch == member.epoch:
            return member
        reported = _reported(request)
        # The answer with the new epoch may have been lost: a member that is one behind has proved nothing wrong yet.
        is_one_behind = request.member_epoch == member.previous_epoch
        if is_one_behind and reported is not None and reported <= member.assigned:
            return member
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"the member is at epoch {member.epoch}")

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now: float) -> ConsumerGroupHeartbeatResponse:
        member = self._find(request.member_id, request.instance_id)
        if request.member_epoch == _AWAY:
            if member.instance_id is None:
                raise Refused(ErrorCode.INVALID_REQUEST, "only static members can be away")
            self._revoke_by.pop(member.member_id, None)
            self._move(member, Step.STABLE, _AWAY, member.assigned, frozenset())
            self._see(member, now)
        elif request.member_epoch == _LEAVES:
            self._expel(member)
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"no such epoch: {request.member_epoch}")
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _expel(self, member: ConsumerMember) -> None:
        self._disown(member)
        self._drop(member)
        self._revoke_by.pop(member.member_id, None)
        self._at.epoch += 1
        self._is_unsaved = True
        if not self.members:
            self._at.target_epoch, self._at.topics = self._at.epoch, {}

    def _update(self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
        """Take over what the member says about itself."""
        self._check_assignor(request.server_assignor)
        before = (member.names, member.regex, member.assignor)
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = min(request.rebalance_timeout_ms, self.settings.max_rebalance_timeout_ms)
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.subscribed_topic_names is not None:
            member.names = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            member.regex = request.subscribed_topic_regex or None
        if request.server_assignor is not None:
            member.assignor = request.server_assignor
        if before != (member.names, member.regex, member.assignor):
            self._is_outdated = True
            self._changed(member)

    # --- from here to the target ------------------------------------------------------------------------------------

    def _retarget(self, topics: Topics) -> None:
        counts = dict(self._at.topics.values())
        wants = {
            key: Want(
                order=member.instance_id or key,
                topics=frozenset(
                    self._at.topics[name][0] for name in _wishes(member, topics) if name in self._at.topics
                ),
                has=member.target,
            )
            for key, member in self.members.items()
        }
        for key, target in ASSIGNORS[self.assignor](wants, counts).items():
            if target != self.members[key].target:
                self.members[key].target = frozenset(target)
                self._touched.add(key)
        self._at.target_epoch = self._at.epoch
        self._is_unsaved = True

    def _reconcile(self, member: ConsumerMember, reported: frozenset[Partition] | None, now: float) -> None:
        """Bring a member as far towards the target as the others allow."""
        if member.step is Step.REVOKING and (reported is None or reported & member.revoking):
            return  # it has not let go yet
        if member.step is Step.STABLE and member.epoch == self._at.target_epoch:
            return
        kept = member.assigned & member.target
        let_go = member.assigned - member.target
        if let_go and (reported is None or reported & let_go):
            self._move(member, Step.REVOKING, member.epoch, kept, let_go)
            self._revoke_by[member.member_id] = now + member.rebalance_timeout_ms / 1000
            return
        self._revoke_by.pop(member.member_id, None)
        free = {each for each in member.target if self._owners.get(each, member.member_id) == member.member_id}
        step = Step.STABLE if len(free) == len(member.target) else Step.WAITING
        self._move(member, step, self._at.target_epoch, frozenset(free), frozenset())

    def _move(
        self,
        member: ConsumerMember,
        step: Step,
        epoch: int,
        assigned: frozenset[Partition],
        revoking: frozenset[Partition],
    ) -> None:
        if (step, epoch, assigned, revoking) == (member.step, member.epoch, member.assigned, member.revoking):
            return
        self._disown(member)
        if epoch != member.epoch:
            member.previous_epoch = member.epoch
        member.step, member.epoch, member.assigned, member.revoking = step, epoch, assigned, revoking
        self._own(member)
        self._changed(member)

    # --- small things -----------------------------------------------------------------------------------------------

    def _own(self, member: ConsumerMember) -> None:
        self._owners.update(dict.fromkeys(member.assigned | member.revoking, member.member_id))

    def _disown(self, member: ConsumerMember) -> None:
        for partition in member.assigned | member.revoking:
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _present(self) -> Iterable[ConsumerMember]:
        return (each for each in self.members.values() if not each.is_away)

    def _wanted(self, topics: Topics) -> set[str]:
        return {name for member in self.members.values() for name in _wishes(member, topics)}

    def _changed(self, member: ConsumerMember) -> None:
        self._touched.add(member.member_id)
        self._is_unsaved = True

    def _see(self, member: ConsumerMember, now: float) -> None:
        self._deadlines[member.member_id] = now + self.settings.consumer_session_timeout_s

    def _check_assignor(self, name: str | None) -> None:
        if name is not None and name not in ASSIGNORS:
            raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, f"the assignors are {', '.join(ASSIGNORS)}")

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            raise Refused(ErrorCode.STALE_MEMBER_EPOCH, f"the member is at epoch {member.epoch}")

    def _head(self) -> bytes:
        return msgspec.json.encode(self._at)


def _wishes(member: ConsumerMember, topics: Topics) -> frozenset[str]:
    return member.names | topics.matches.get(member.regex, frozenset()) if member.regex else member.names


def _reported(request: ConsumerGroupHeartbeatRequest) -> frozenset[Partition] | None:
    """What the member says that it holds; who joins holds nothing."""
    if request.topic_partitions is None:
        return frozenset() if request.member_epoch == _JOINS else None
    return frozenset((each.topic_id, index) for each in request.topic_partitions for index in each.partitions)


def _to_wire(partitions: Iterable[Partition]) -> Assignment:
    by_topic: dict[UUID, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return Assignment(tuple(AssignedTopic(topic, tuple(indexes)) for topic, indexes in by_topic.items()))
