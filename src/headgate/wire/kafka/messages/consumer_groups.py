"""Consumer groups whose partitions the server assigns (KIP-848).

Specification: Apache Kafka protocol guide, "The Messages"; KIP-848.
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import NO_UUID, Body, Bool, Int8, Int16, Int32, String, Uuid, since

__all__ = [
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "AssignedTopic",
    "Assignment",
    "ConsumerGroup",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupMember",
    "DescribedAssignment",
    "NamedAssignedTopic",
]


class AssignedTopic(Body, frozen=True):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class Assignment(Body, frozen=True):
    """All that a member owns."""

    topic_partitions: tuple[AssignedTopic, ...] = ()


class ConsumerGroupHeartbeatRequest(Body, frozen=True):
    """Enter, live in or leave a group; null stands for what has not changed. Epoch 0 enters, -1 leaves."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[String | None, since(1)] = None
    server_assignor: String | None = None
    topic_partitions: tuple[AssignedTopic, ...] | None = None


class ConsumerGroupHeartbeatResponse(Body, frozen=True):
    """The member's epoch, and its assignment if that has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Body, frozen=True):
    """Ask for groups."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


class NamedAssignedTopic(Body, frozen=True):
    """Partitions of one topic, which is named as well."""

    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedAssignment(Body, frozen=True):
    """All that a member owns, or is to own."""

    topic_partitions: tuple[NamedAssignedTopic, ...] = ()


class ConsumerGroupMember(Body, frozen=True):
    """A member."""

    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    assignment: DescribedAssignment = DescribedAssignment()
    target_assignment: DescribedAssignment = DescribedAssignment()
    member_type: Annotated[Int8, since(1)] = -1


class ConsumerGroup(Body, frozen=True):
    """A group with its members."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[ConsumerGroupMember, ...] = ()
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Body, frozen=True):
    """The groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[ConsumerGroup, ...] = ()


CONSUMER_GROUP_HEARTBEAT = Api(
    68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, first=0, last=1, flexible=0
)
CONSUMER_GROUP_DESCRIBE = Api(
    69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, first=0, last=1, flexible=0
)
