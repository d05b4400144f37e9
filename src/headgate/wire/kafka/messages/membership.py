"""Classic consumer groups, as their members see them.

Specification: Apache Kafka protocol guide, "The Messages". What members say to one another is in bytes that no
server reads: Kafka's "ConsumerProtocol".
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Bytes, Int8, Int16, Int32, String, between, nullable, since

__all__ = [
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "SYNC_GROUP",
    "Coordinator",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupProtocol",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "JoinedMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "LeavingMember",
    "LeftMember",
    "MemberAssignment",
    "SyncGroupRequest",
    "SyncGroupResponse",
]


class FindCoordinatorRequest(Body, frozen=True):
    """Ask who coordinates a group or a transactional id; several at once from version 4 on."""

    key: Annotated[String, between(0, 3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], since(4)] = ()  # KIP-699


class Coordinator(Body, frozen=True):
    """The coordinator of one key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(Body, frozen=True):
    """The coordinators."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, between(0, 3)] = 0
    error_message: Annotated[String | None, between(1, 3)] = ""
    node_id: Annotated[Int32, between(0, 3)] = 0
    host: Annotated[String, between(0, 3)] = ""
    port: Annotated[Int32, between(0, 3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()


class JoinGroupProtocol(Body, frozen=True):
    """An assignor that the member knows, with its subscription."""

    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Body, frozen=True):
    """Enter a group, or enter it again in a rebalance."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1  # KIP-62
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None  # KIP-345
    protocol_type: String = ""
    protocols: tuple[JoinGroupProtocol, ...] = ()
    reason: Annotated[String | None, since(8)] = None  # KIP-800


class JoinedMember(Body, frozen=True):
    """A member and its subscription."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Body, frozen=True):
    """The generation; the leader alone also learns the members."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7)] = None  # KIP-559
    protocol_name: Annotated[String | None, nullable(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False  # KIP-814
    member_id: String = ""
    members: tuple[JoinedMember, ...] = ()


class MemberAssignment(Body, frozen=True):
    """What one member gets."""

    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Body, frozen=True):
    """Hand over the leader's assignment, or wait for it."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    protocol_type: Annotated[String | None, since(5)] = None  # KIP-559
    protocol_name: Annotated[String | None, since(5)] = None
    assignments: tuple[MemberAssignment, ...] = ()


class SyncGroupResponse(Body, frozen=True):
    """What this member gets."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5)] = None
    protocol_name: Annotated[String | None, since(5)] = None
    assignment: Bytes = b""


class HeartbeatRequest(Body, frozen=True):
    """A member lives."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None


class HeartbeatResponse(Body, frozen=True):
    """All is well, or a rebalance is under way."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class LeavingMember(Body, frozen=True):
    """A member that leaves."""

    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5)] = None  # KIP-800


class LeaveGroupRequest(Body, frozen=True):
    """Leave a group: one member up to version 2, several from version 3 on."""

    group_id: String = ""
    member_id: Annotated[String, between(0, 2)] = ""
    members: Annotated[tuple[LeavingMember, ...], since(3)] = ()


class LeftMember(Body, frozen=True):
    """The answer for one member."""

    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Body, frozen=True):
    """The members that have left."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[LeftMember, ...], since(3)] = ()


FIND_COORDINATOR = Api(10, FindCoordinatorRequest, FindCoordinatorResponse, first=0, last=6, flexible=3)
JOIN_GROUP = Api(11, JoinGroupRequest, JoinGroupResponse, first=0, last=9, flexible=6)
SYNC_GROUP = Api(14, SyncGroupRequest, SyncGroupResponse, first=0, last=5, flexible=4)
HEARTBEAT = Api(12, HeartbeatRequest, HeartbeatResponse, first=0, last=4, flexible=4)
LEAVE_GROUP = Api(13, LeaveGroupRequest, LeaveGroupResponse, first=0, last=5, flexible=4)
