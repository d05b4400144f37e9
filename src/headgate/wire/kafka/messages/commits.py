"""A group's offsets: stored, asked for, forgotten.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-496 (OffsetDelete).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import NO_UUID, Body, Bool, Int16, Int32, Int64, String, Uuid, between, nullable, since

__all__ = [
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "CommitPartition",
    "CommitTopic",
    "CommittedPartition",
    "CommittedTopic",
    "DeletedOffset",
    "DeletedOffsetsTopic",
    "FetchedGroupOffset",
    "FetchedOffset",
    "FetchedOffsetsGroup",
    "FetchedOffsetsGroupTopic",
    "FetchedOffsetsTopic",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeletePartition",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetDeleteTopic",
    "OffsetFetchGroup",
    "OffsetFetchGroupTopic",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetFetchTopic",
]


class CommitPartition(Body, frozen=True):
    """An offset and a remark of the consumer."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6)] = -1  # KIP-320
    committed_metadata: String | None = ""


class CommitTopic(Body, frozen=True):
    """By name up to version 9, by id from version 10 on."""

    name: Annotated[String, between(2, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[CommitPartition, ...] = ()


class OffsetCommitRequest(Body, frozen=True):
    """Store offsets of a group."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(7)] = None  # KIP-345
    retention_time_ms: Annotated[Int64, between(2, 4)] = -1
    topics: tuple[CommitTopic, ...] = ()


class CommittedPartition(Body, frozen=True):
    """The answer for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class CommittedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: Annotated[String, between(2, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[CommittedPartition, ...] = ()


class OffsetCommitResponse(Body, frozen=True):
    """Which offsets were stored."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: tuple[CommittedTopic, ...] = ()


class OffsetFetchTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchGroupTopic(Body, frozen=True):
    """By name up to version 9, by id from version 10 on."""

    name: Annotated[String, between(8, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchGroup(Body, frozen=True):
    """A group; null topics mean all."""

    group_id: String = ""
    member_id: Annotated[String | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1  # KIP-848
    topics: tuple[OffsetFetchGroupTopic, ...] | None = ()


class OffsetFetchRequest(Body, frozen=True):
    """Ask for stored offsets: of one group up to version 7, of several from version 8 on."""

    group_id: Annotated[String, between(1, 7)] = ""
    topics: Annotated[tuple[OffsetFetchTopic, ...] | None, between(1, 7), nullable(2)] = ()
    groups: Annotated[tuple[OffsetFetchGroup, ...], since(8)] = ()  # KIP-709
    require_stable: Annotated[Bool, since(7)] = False  # KIP-447


class FetchedOffset(Body, frozen=True):
    """An offset, or -1 if none is stored."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class FetchedOffsetsTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[FetchedOffset, ...] = ()


class FetchedGroupOffset(Body, frozen=True):
    """An offset, or -1 if none is stored."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class FetchedOffsetsGroupTopic(Body, frozen=True):
    """The answer for one topic of a group."""

    name: Annotated[String, between(8, 9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[FetchedGroupOffset, ...] = ()


class FetchedOffsetsGroup(Body, frozen=True):
    """The answer for one group."""

    group_id: String = ""
    topics: tuple[FetchedOffsetsGroupTopic, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(Body, frozen=True):
    """The stored offsets."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[tuple[FetchedOffsetsTopic, ...], between(1, 7)] = ()
    error_code: Annotated[Int16, between(2, 7)] = 0
    groups: Annotated[tuple[FetchedOffsetsGroup, ...], since(8)] = ()


class OffsetDeletePartition(Body, frozen=True):
    """A partition."""

    partition_index: Int32 = 0


class OffsetDeleteTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetDeletePartition, ...] = ()


class OffsetDeleteRequest(Body, frozen=True):
    """Forget offsets of a group."""

    group_id: String = ""
    topics: tuple[OffsetDeleteTopic, ...] = ()


class DeletedOffset(Body, frozen=True):
    """The answer for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class DeletedOffsetsTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[DeletedOffset, ...] = ()


class OffsetDeleteResponse(Body, frozen=True):
    """Which offsets were forgotten."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[DeletedOffsetsTopic, ...] = ()


OFFSET_COMMIT = Api(8, OffsetCommitRequest, OffsetCommitResponse, first=2, last=10, flexible=8)
OFFSET_FETCH = Api(9, OffsetFetchRequest, OffsetFetchResponse, first=1, last=10, flexible=6)
OFFSET_DELETE = Api(47, OffsetDeleteRequest, OffsetDeleteResponse, first=0, last=0)
