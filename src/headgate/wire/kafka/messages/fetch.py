"""Reading the log.

Specification: Apache Kafka protocol guide, "The Messages".
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.messages.shared import LeaderIdAndEpoch, NodeEndpoint
from headgate.wire.kafka.schema import (
    NO_UUID,
    Body,
    Int8,
    Int16,
    Int32,
    Int64,
    RecordParts,
    String,
    Uuid,
    between,
    since,
    tag,
)

__all__ = [
    "FETCH",
    "AbortedTransaction",
    "DivergingEpoch",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "ForgottenTopic",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(Body, frozen=True):
    """Which replica asks; consumers leave it out."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Body, frozen=True):
    """Where to read, and how much."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9)] = -1  # KIP-320
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(17), tag(0)] = NO_UUID  # KIP-853
    high_watermark: Annotated[Int64, since(18), tag(1)] = 9223372036854775807


class FetchTopic(Body, frozen=True):
    """By name up to version 12, by id from version 13 on."""

    topic: Annotated[String, between(4, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID  # KIP-516
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(Body, frozen=True):
    """Partitions that leave an incremental fetch session (KIP-227)."""

    topic: Annotated[String, between(7, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(Body, frozen=True):
    """Read batches, waiting up to `max_wait_ms` for `min_bytes` of them."""

    cluster_id: Annotated[String | None, since(12), tag(0)] = None
    replica_id: Annotated[Int32, between(4, 14)] = -1
    replica_state: Annotated[ReplicaState, since(15), tag(1)] = ReplicaState()  # KIP-903
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0  # KIP-227
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[String, since(11)] = ""  # KIP-392


class DivergingEpoch(Body, frozen=True):
    """Where the reader's log and this one part."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(Body, frozen=True):
    """Used between controllers only."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Body, frozen=True):
    """A transaction whose records a committed reader must leave out."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class FetchedPartition(Body, frozen=True):
    """Batches as they are stored; the first may begin before the offset that was asked for."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[DivergingEpoch, since(12), tag(0)] = DivergingEpoch()
    current_leader: Annotated[LeaderIdAndEpoch, since(12), tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, since(12), tag(2)] = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = ()
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: RecordParts | None = None


class FetchedTopic(Body, frozen=True):
    """The answer for one topic."""

    topic: Annotated[String, between(4, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[FetchedPartition, ...] = ()


class FetchResponse(Body, frozen=True):
    """Batches, for every partition that was asked for."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: tuple[FetchedTopic, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(16), tag(0)] = ()  # KIP-951


FETCH = Api(1, FetchRequest, FetchResponse, first=4, last=18, flexible=12)
