"""Consumer groups under any order of heartbeats, lost answers, slow revocations, deaths and coordinator restarts.

The one thing that matters: no partition is ever read by two members at once. The second: when everybody goes on
sending heartbeats, all partitions are read by somebody.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.gateway.groups.assignors import Partition
from headgate.gateway.groups.consumer import ConsumerGroup, Topics
from headgate.gateway.groups.group import Client, Stored
from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import (
    AssignedTopic,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headgate.wire.kafka.refusal import Refused

SETTINGS = GroupSettings(max_members=5)
NAMES = ("a", "b", "c")
REBALANCE_S = 60.0


@dataclass(eq=False)
class Process:
    """A consumer, as its own process sees it. It stops reading by itself when it cannot reach the group in time."""

    member_id: str
    names: frozenset[str]
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    reads: set[Partition] = field(default_factory=set)
    target: set[Partition] = field(default_factory=set)
    seen_at: float = 0.0
    is_obeying: bool = True  # whether it lets go as soon as it is told


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.group = ConsumerGroup(SETTINGS)
        self.head: bytes | None = None
        self.rows: dict[str, bytes] = {}
        self.processes: list[Process] = []
        self.born = 0
        self.topic_ids = 100
        self.counts = {name: (UUID(int=place + 1), 3) for place, name in enumerate(NAMES[:2])}

    @property
    def topics(self) -> Topics:
        return Topics(self.counts.get, {"[ab]": frozenset(name for name in self.counts if name in "ab")})

    def settle(self) -> None:
        changes = self.group.take_changes()
        if changes:
            self.head = changes.head
            self.rows |= {key: row[3] for key, row in changes.members.items()}
            for key in changes.gone:
                self.rows.pop(key, None)

    def beat(self, process: Process, *, is_lost: bool = False) -> ErrorCode:
        is_joining = process.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=process.member_id,
            member_epoch=process.epoch,
            instance_id=process.instance_id,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if is_joining else -1,
            subscribed_topic_names=tuple(process.names),
            server_assignor=process.assignor,
            topic_partitions=() if is_joining else _wire(process.reads),
        )
        try:
            answer = self.group.heartbeat(request, Client("c", "host", 1), self.topics, self.now)
        except Refused as refused:
            self.settle()
            if refused.code is not ErrorCode.UNRELEASED_INSTANCE_ID:
                process.epoch, process.reads, process.target = 0, set(), set()
            return refused.code
        self.settle()
        if not is_lost:
            self.receive(process, answer)
        return ErrorCode.NONE

    def receive(self, process: Process, answer: ConsumerGroupHeartbeatResponse) -> None:
        process.epoch, process.seen_at = answer.member_epoch, self.now
        if answer.assignment is not None:
            process.target = {
                (each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions
            }
            process.reads |= process.target
        if process.is_obeying:
            process.reads &= process.target

    def pick(self, index: int) -> Process:
        return self.processes[index % len(self.processes)]

    @rule(
        names=st.frozensets(st.sampled_from(NAMES), min_size=1),
        place=st.none() | st.integers(0, 1),
        assignor=st.sampled_from([None, "range", "uniform"]),
        is_obeying=st.booleans(),
    )
    def spawn(self, names: frozenset[str], place: int | None, assignor: str | None, is_obeying: bool) -> None:
        self.born += 1
        instance = None if place is None else f"i{place}"
        process = Process(f"m{self.born}", names, instance, assignor, is_obeying=is_obeying)
        if self.beat(process) is ErrorCode.NONE:
            self.processes.append(process)

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), is_lost=st.booleans())
    def heartbeat(self, index: int, is_lost: bool) -> None:
        self.beat(self.pick(index), is_lost=is_lost)

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50))
    def let_go(self, index: int) -> None:
        process = self.pick(index)
        process.reads &= process.target

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), names=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def resubscribe(self, index: int, names: frozenset[str]) -> None:
        self.pick(index).names = names

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), is_away=st.booleans())
    def leave(self, index: int, is_away: bool) -> None:
        process = self.processes.pop(index % len(self.processes))
        epoch = -2 if is_away and process.instance_id else -1
        request = ConsumerGroupHeartbeatRequest("g", process.member_id, epoch, process.instance_id)
        with suppress(Refused):  # its session may be over
            self.group.heartbeat(request, Client("c", "host", 1), self.topics, self.now)
        self.settle()

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50))
    def die(self, index: int) -> None:
        self.processes.pop(index % len(self.processes))

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def change_topic(self, name: str, count: int) -> None:
        """A topic grows; one that would shrink is deleted instead, and created again under a new id later."""
        if name not in self.counts:
            self.topic_ids += 1
            self.counts[name] = (UUID(int=self.topic_ids), count)
        elif count < self.counts[name][1]:
            del self.counts[name]
        else:
            self.counts[name] = (self.counts[name][0], count)

    @rule(seconds=st.sampled_from([1.0, 20.0, 46.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for process in self.processes:
            # Consumers give up before the coordinator does, or their heartbeat tells them at once.
            if self.now - process.seen_at >= SETTINGS.consumer_session_timeout_s:
                process.reads, process.target, process.epoch = set(), set(), 0
        self.group.tick(self.now)
        self.settle()

    @rule()
    def restart_coordinator(self) -> None:
        if self.head is None:
            return
        before = self.group
        self.group = ConsumerGroup.load(SETTINGS, Stored("consumer", self.head, list(self.rows.values())), self.now)
        assert self.group.members.keys() == before.members.keys()
        assert self.group.generation == before.generation
        assert self.group.state == before.state
        for key, member in self.group.members.items():
            was = before.members[key]
            assert (member.epoch, member.assigned, member.revoking) == (was.epoch, was.assigned, was.revoking)

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), age=st.integers(-1, 1))
    def commit(self, index: int, age: int) -> None:
        process = self.pick(index)
        member = self.group.members.get(process.member_id)
        epoch = process.epoch + age
        try:
            self.group.check_commit(process.member_id, process.instance_id, epoch, 9, self.now)
        except Refused:
            return
        assert member is None or member.epoch == epoch

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        readers: dict[Partition, str] = {}
        for process in self.processes:
            if process.member_id not in self.group.members:
                continue  # fenced: it learns so with its next heartbeat, and its commits are refused until then
            for partition in process.reads:
                assert readers.setdefault(partition, process.member_id) == process.member_id

    @rule()
    def everybody_ends_with_a_share(self) -> None:
        """When all go on, the group comes to rest, with every partition read by one who wants it."""
        for process in self.processes:
            process.is_obeying = True
        for _ in range(len(self.processes) + 14):
            self.now += 5.0
            self.group.tick(self.now)
            self.settle()
            self.processes = [
                each for each in self.processes if self.beat(each) is not ErrorCode.UNRELEASED_INSTANCE_ID
            ]
        present = [each for each in self.processes if each.member_id in self.group.members]
        if len(present) < len(self.group.members) or len(present) < len(self.processes):
            return  # static members that are away keep their share
        wanted = {name for each in present for name in each.names if name in self.counts}
        expected = {(self.counts[name][0], index) for name in wanted for index in range(self.counts[name][1])}
        read = [partition for each in present for partition in each.reads]
        assert sorted(read) == sorted(expected)
        assert self.group.state == ("Stable" if present else "Empty")


def _wire(partitions: set[Partition]) -> tuple[AssignedTopic, ...]:
    return tuple(AssignedTopic(topic, (index,)) for topic, index in sorted(partitions))


ConsumerGroupMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestConsumerGroup = ConsumerGroupMachine.TestCase
