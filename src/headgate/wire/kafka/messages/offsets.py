"""Places in the log: by time, and by leader epoch.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-79 (offsets by time), KIP-101 (leader epochs).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Int8, Int16, Int32, Int64, String, between, since

__all__ = [
    "LIST_OFFSETS",
    "OFFSET_FOR_LEADER_EPOCH",
    "EpochEndOffset",
    "EpochEndTopic",
    "LeaderEpochPartition",
    "LeaderEpochTopic",
    "ListOffsetsPartition",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListedOffsetsPartition",
    "ListedOffsetsTopic",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
]


class ListOffsetsPartition(Body, frozen=True):
    """One question."""

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, between(0, 0)] = 1


class ListOffsetsTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(Body, frozen=True):
    """Ask for offsets by time; -2 is the earliest, -1 the latest, -3 that of the highest time."""

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2)] = 0  # KIP-98
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, since(10)] = 0  # KIP-1075


class ListedOffsetsPartition(Body, frozen=True):
    """The offset, and the time of its record."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: Annotated[tuple[Int64, ...], between(0, 0)] = ()
    timestamp: Annotated[Int64, since(1)] = -1
    offset: Annotated[Int64, since(1)] = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListedOffsetsTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[ListedOffsetsPartition, ...] = ()


class ListOffsetsResponse(Body, frozen=True):
    """The offsets."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[ListedOffsetsTopic, ...] = ()


class LeaderEpochPartition(Body, frozen=True):
    """One question."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class LeaderEpochTopic(Body, frozen=True):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[LeaderEpochPartition, ...] = ()


class OffsetForLeaderEpochRequest(Body, frozen=True):
    """Ask where leader epochs ended, to find out what was truncated (KIP-320)."""

    replica_id: Annotated[Int32, since(3)] = -2
    topics: tuple[LeaderEpochTopic, ...] = ()


class EpochEndOffset(Body, frozen=True):
    """The largest epoch up to the one asked for, and its end."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class EpochEndTopic(Body, frozen=True):
    """The answer for one topic."""

    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


class OffsetForLeaderEpochResponse(Body, frozen=True):
    """The ends of the epochs."""

    throttle_time_ms: Int32 = 0
    topics: tuple[EpochEndTopic, ...] = ()


# Version 0 is gone from Kafka 4, but kafka-python 2.2 sends it to any broker.
LIST_OFFSETS = Api(2, ListOffsetsRequest, ListOffsetsResponse, first=0, last=11, flexible=6)
OFFSET_FOR_LEADER_EPOCH = Api(
    23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, first=2, last=4, flexible=4
)
