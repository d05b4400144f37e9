"""Classic groups under any order of joins, syncs, heartbeats, departures, deaths and coordinator restarts."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.gateway.groups.classic import ClassicGroup, Phase
from headgate.gateway.groups.group import Changes, Client, Stored
from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headgate.wire.kafka.refusal import Refused

SETTINGS = GroupSettings(max_members=6)
SESSION_S, REBALANCE_S = 10.0, 30.0


@dataclass(eq=False)
class Process:
    """A consumer, as its own process sees it."""

    name: str
    version: int
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    joined: JoinGroupResponse | None = None
    assignment: bytes | None = None
    is_alive: bool = True
    wish: int = 0


@dataclass
class Disk:
    """What the store would hold."""

    head: bytes | None = None
    members: dict[str, bytes] = field(default_factory=dict)

    def write(self, changes: Changes) -> None:
        self.head = changes.head
        self.members |= {key: row[3] for key, row in changes.members.items()}
        for key in changes.gone:
            self.members.pop(key, None)


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.group = ClassicGroup(SETTINGS)
        self.disk = Disk()
        self.processes: list[Process] = []
        self.tickets: dict[object, tuple[Process, type[Body]]] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.leaders: dict[int, str] = {}
        self.generation = 0
        self.refusals: set[ErrorCode] = set()  # of joins and departures

    def settle(self) -> None:
        """Store, then answer: as a driver does."""
        changes = self.group.take_changes()
        if changes:
            self.disk.write(changes)
        for ticket, answer in self.group.take_answers():
            process, kind = self.tickets.pop(ticket)  # a ticket that is answered twice is not found here
            assert isinstance(answer, kind)
            self.receive(process, answer)

    def receive(self, process: Process, answer: Body) -> None:
        if isinstance(answer, JoinGroupResponse):
            self.receive_join(process, answer)
        elif isinstance(answer, SyncGroupResponse):
            if answer.error_code == ErrorCode.NONE:
                process.assignment = answer.assignment
            self.obey(process, answer.error_code)

    def receive_join(self, process: Process, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            process.member_id = answer.member_id
        elif answer.error_code == ErrorCode.NONE:
            process.member_id, process.generation, process.joined = answer.member_id, answer.generation_id, answer
            process.assignment = None
            if answer.members and not answer.skip_assignment:
                leader = self.leaders.setdefault(answer.generation_id, answer.member_id)
                assert leader == answer.member_id == answer.leader
                assert process.member_id in {each.member_id for each in answer.members}
        self.obey(process, answer.error_code)

    def obey(self, process: Process, code: int) -> None:
        """Do what a client does after an error."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            process.member_id, process.generation, process.joined = "", -1, None
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            process.joined = None

    def pick(self, index: int) -> Process:
        return self.processes[index % len(self.processes)]

    @rule(static=st.booleans(), version=st.sampled_from([0, 5, 9]), place=st.integers(0, 2))
    def spawn(self, static: bool, version: int, place: int) -> None:
        instance = f"instance-{place}" if static and version >= 5 else None
        self.processes.append(Process(f"p{len(self.processes)}", version, instance))

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), changes=st.booleans())
    def join(self, index: int, changes: bool) -> None:
        process = self.pick(index)
        process.wish += changes
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol("range", b"%d" % process.wish), JoinGroupProtocol("sticky", b"")),
        )
        ticket = object()
        self.tickets[ticket] = (process, JoinGroupResponse)
        try:
            self.group.join(request, Client(process.name, "host", process.version), ticket, self.now)
        except Refused as refused:
            del self.tickets[ticket]
            self.obey(process, refused.code)
            self.refusals.add(refused.code)
        self.settle()

    @precondition(lambda self: any(each.joined for each in self.processes))
    @rule(index=st.integers(0, 50))
    def sync(self, index: int) -> None:
        joined = [each for each in self.processes if each.joined]
        process = joined[index % len(joined)]
        assert process.joined is not None
        shares = {each.member_id: f"{process.generation}/{each.member_id}".encode() for each in process.joined.members}
        ticket = object()
        self.tickets[ticket] = (process, SyncGroupResponse)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=process.generation,
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            assignments=tuple(MemberAssignment(key, share) for key, share in shares.items()),
        )
        before = self.group.phase
        try:
            self.group.sync(request, ticket, self.now)
        except Refused as refused:
            del self.tickets[ticket]
            self.obey(process, refused.code)
        if before is Phase.COMPLETING and self.group.phase is Phase.STABLE:
            assert process.member_id == self.group.leader
            self.assigned[self.group.generation] = shares
        self.settle()

    @precondition(lambda self: self.processes)
    @rule()
    def come_together(self) -> None:
        """What clients do most of the time: all join and sync, so that the other rules find a group at work."""
        for _ in range(2):  # the first time, new members only learn their id
            for index in range(len(self.processes)):
                if self.processes[index].joined is None:
                    self.join(index, False)
        self.pass_time(0.2)
        for index in range(sum(each.joined is not None for each in self.processes)):
            if any(each.joined for each in self.processes):
                self.sync(index)

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50))
    def heartbeat(self, index: int) -> None:
        process = self.pick(index)
        try:
            self.group.heartbeat(process.member_id, process.instance_id, process.generation, self.now)
            assert process.generation == self.group.generation
        except Refused as refused:
            self.obey(process, refused.code)

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50))
    def leave(self, index: int) -> None:
        process = self.processes.pop(index % len(self.processes))
        try:
            self.group.leave(process.member_id, process.instance_id, self.now)
            assert process.member_id not in self.group.members
        except Refused as refused:
            self.refusals.add(refused.code)
        self.settle()

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50))
    def die(self, index: int) -> None:
        self.processes.pop(index % len(self.processes))

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 50), age=st.integers(0, 2))
    def commit(self, index: int, age: int) -> None:
        process = self.pick(index)
        epoch = process.generation - age
        try:
            self.group.check_commit(process.member_id, process.instance_id, epoch, 8, self.now)
        except Refused:
            return
        is_member = process.member_id in self.group.members and epoch == self.group.generation
        assert is_member or (epoch < 0 and self.group.phase is Phase.EMPTY)
        assert self.group.phase is not Phase.COMPLETING

    @precondition(lambda self: self.tickets)
    @rule(index=st.integers(0, 50))
    def hang_up(self, index: int) -> None:
        """A connection breaks; the process behind it may still be there."""
        ticket = list(self.tickets)[index % len(self.tickets)]
        if self.tickets[ticket][1] is JoinGroupResponse:
            del self.tickets[ticket]
            self.group.withdraw(ticket, self.now)
            self.settle()

    @rule(seconds=st.sampled_from([0.05, 0.2, 3.0, 11.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.group.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.tick(self.now)
            self.settle()
        self.now = end

    @rule()
    def restart_coordinator(self) -> None:
        before = self.group
        if self.disk.head is None:
            self.group = ClassicGroup(SETTINGS)
        else:
            stored = Stored("classic", self.disk.head, list(self.disk.members.values()))
            self.group = ClassicGroup.load(SETTINGS, stored, self.now)
        self.tickets.clear()
        assert self.group.generation == before.generation
        if before.phase in (Phase.STABLE, Phase.COMPLETING):
            assert self.group.members == before.members
            assert (self.group.leader, self.group.protocol) == (before.leader, before.protocol)
            assert self.group.state == before.state

    @invariant()
    def only_strangers_and_crowds_are_refused(self) -> None:
        assert self.refusals <= {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        }

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def everybody_has_what_the_leader_said(self) -> None:
        for process in self.processes:
            if process.assignment and process.generation in self.assigned and process.instance_id is None:
                assert process.assignment == self.assigned[process.generation].get(process.member_id, b"")

    @invariant()
    def there_is_a_leader(self) -> None:
        if self.group.phase in (Phase.STABLE, Phase.COMPLETING):
            assert self.group.leader in self.group.members
        assert (self.group.phase is Phase.EMPTY) <= self.group.is_empty

    @invariant()
    def whoever_waits_is_known(self) -> None:
        assert set(self.group.waiting()) == self.tickets.keys()

    def teardown(self) -> None:
        """Nobody waits for ever: without any request, every group is empty in the end."""
        for _ in range(40):
            due = self.group.next_deadline()
            if due is None:
                break
            self.now = max(self.now, due)
            self.group.tick(self.now)
            self.settle()
        assert not self.tickets
        assert self.group.phase is Phase.EMPTY
        assert not self.disk.members


ClassicGroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestClassicGroup = ClassicGroupMachine.TestCase
