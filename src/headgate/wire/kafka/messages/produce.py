"""Appending to the log.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-98 (producer ids and transactions).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.messages.shared import LeaderIdAndEpoch, NodeEndpoint
from headgate.wire.kafka.schema import (
    NO_UUID,
    Body,
    Bool,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    between,
    since,
    tag,
)

__all__ = [
    "INIT_PRODUCER_ID",
    "PRODUCE",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "ProducePartition",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceTopic",
    "ProducedPartition",
    "ProducedTopic",
    "RecordError",
]


class ProducePartition(Body, frozen=True):
    """Batches for one partition, as they were sent."""

    index: Int32 = 0
    records: Records | None = None


class ProduceTopic(Body, frozen=True):
    """By name up to version 12, by id from version 13 on."""

    name: Annotated[String, between(3, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID  # KIP-516
    partition_data: tuple[ProducePartition, ...] = ()


class ProduceRequest(Body, frozen=True):
    """Append record batches. With `acks` 0 there is no response at all."""

    transactional_id: String | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: tuple[ProduceTopic, ...] = ()


class RecordError(Body, frozen=True):
    """One record of a batch that was refused."""

    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class ProducedPartition(Body, frozen=True):
    """The first offset, and the time of the log if the topic uses it."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[tuple[RecordError, ...], since(8)] = ()  # KIP-467
    error_message: Annotated[String | None, since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, since(10), tag(0)] = LeaderIdAndEpoch()


class ProducedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: Annotated[String, between(3, 12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partition_responses: tuple[ProducedPartition, ...] = ()


class ProduceResponse(Body, frozen=True):
    """Where the batches went, or why they did not."""

    responses: tuple[ProducedTopic, ...] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(10), tag(0)] = ()  # KIP-951


class InitProducerIdRequest(Body, frozen=True):
    """Ask for a producer id, for idempotence or transactions."""

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1  # KIP-360
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable2_pc: Annotated[Bool, since(6)] = False  # KIP-939
    keep_prepared_txn: Annotated[Bool, since(6)] = False


class InitProducerIdResponse(Body, frozen=True):
    """The producer id and its epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1


PRODUCE = Api(0, ProduceRequest, ProduceResponse, first=3, last=13, flexible=9)
INIT_PRODUCER_ID = Api(22, InitProducerIdRequest, InitProducerIdResponse, first=0, last=6, flexible=2)
