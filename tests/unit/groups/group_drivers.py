"""Groups of both kinds with a clock of their own, driven without a server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headgate.gateway.groups.classic import ClassicGroup, Phase
from headgate.gateway.groups.consumer import ConsumerGroup, Topics
from headgate.gateway.groups.group import Client
from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import (
    AssignedTopic,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headgate.wire.kafka.messages.membership import (
    JoinGroupProtocol,
    JoinGroupRequest,
    MemberAssignment,
    SyncGroupRequest,
)
from headgate.wire.kafka.refusal import Refused

SETTINGS = GroupSettings(initial_rebalance_delay_s=1.0, max_members=3)
OLD = Client("c", "h", 3)  # joins at once, without asking for an id first
TOPIC = UUID(int=7)


class ClassicDriver:
    """A group with a clock, whose answers are kept by ticket."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.group = ClassicGroup(settings)
        self.now = 0.0
        self.answers: dict[object, Any] = {}

    def join(self, ticket: str, member_id: str = "", client: Client = OLD, **fields: Any) -> None:
        names = fields.pop("names", ("range",))
        defaults: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
            "protocols": tuple(JoinGroupProtocol(each, ticket.encode()) for each in names),
        }
        request = JoinGroupRequest(group_id="g", member_id=member_id, **(defaults | fields))
        self.group.join(request, client, ticket, self.now)
        self.collect()

    def sync(self, ticket: str, member_id: str, generation: int, **assignments: bytes) -> None:
        shares = tuple(MemberAssignment(key, share) for key, share in assignments.items())
        self.group.sync(SyncGroupRequest("g", generation, member_id, assignments=shares), ticket, self.now)
        self.collect()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.group.tick(self.now)
        self.collect()

    def collect(self) -> None:
        self.answers |= dict(self.group.take_answers())

    def start(self, *tickets: str, static: bool = False) -> list[str]:
        """A stable group, whose members have their tickets as assignment; their ids."""
        for ticket in tickets:
            self.join(ticket, group_instance_id=ticket if static else None)
        self.wait(1.0)
        ids = [self.answers[ticket].member_id for ticket in tickets]
        assert self.group.leader == ids[0]
        shares = {key: ticket.encode() for key, ticket in zip(ids, tickets, strict=True)}
        for key, ticket in zip(ids, tickets, strict=True):
            request = tuple(MemberAssignment(*each) for each in shares.items())
            self.group.sync(SyncGroupRequest("g", self.group.generation, key, assignments=request), ticket, self.now)
        self.collect()
        assert self.group.phase is Phase.STABLE
        return ids


class ConsumerDriver:
    """A group with a clock and one topic."""

    def __init__(self, partitions: int = 4, *, max_members: int = 2) -> None:
        self.group = ConsumerGroup(GroupSettings(max_members=max_members))
        self.partitions = partitions
        self.now = 0.0

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (TOPIC, self.partitions) if name == "t" else None

    def beat(self, member_id: str, epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        enter: dict[str, Any] = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ("t",)} if epoch == 0 else {}
        owned = fields.pop("owns", None)
        if owned is not None:
            fields["topic_partitions"] = (AssignedTopic(TOPIC, tuple(owned)),) if owned else ()
        request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, **(enter | fields))
        topics = Topics(self.find, {"t.*": frozenset({"t"})})
        answer = self.group.heartbeat(request, Client("c", "h", 1), topics, self.now)
        self.group.take_changes()
        return answer

    def refusal(self, member_id: str, epoch: int = 0, **fields: Any) -> ErrorCode:
        with pytest.raises(Refused) as refused:
            self.beat(member_id, epoch, **fields)
        return refused.value.code


def held_by(group: ConsumerGroup, member_id: str) -> list[int]:
    """The partitions that a member has been told to hold."""
    return sorted(index for _, index in group.members[member_id].assigned)
