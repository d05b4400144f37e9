"""Transactions: what a producer adds to one, how it ends, and the offsets that are part of it.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-98 (transactions), KIP-890 (their second version).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Int8, Int16, Int32, Int64, String, between, since

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "END_TXN",
    "TXN_OFFSET_COMMIT",
    "WRITE_TXN_MARKERS",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddedPartition",
    "AddedTopic",
    "AddedTransaction",
    "EndTxnRequest",
    "EndTxnResponse",
    "TransactionPartitions",
    "TransactionTopic",
    "TxnCommitPartition",
    "TxnCommitTopic",
    "TxnCommittedPartition",
    "TxnCommittedTopic",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
    "WrittenMarker",
    "WrittenMarkerPartition",
    "WrittenMarkerTopic",
    "WrittenMarkerTopicResult",
    "WrittenTxnMarker",
]


class TransactionTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class TransactionPartitions(Body, frozen=True):
    """Partitions for one transaction, or the question whether they are in it."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: tuple[TransactionTopic, ...] = ()


class AddPartitionsToTxnRequest(Body, frozen=True):
    """Add partitions to a transaction; from version 4 on, which brokers use, to several."""

    transactions: Annotated[tuple[TransactionPartitions, ...], since(4)] = ()
    v3_and_below_transactional_id: Annotated[String, between(0, 3)] = ""
    v3_and_below_producer_id: Annotated[Int64, between(0, 3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, between(0, 3)] = 0
    v3_and_below_topics: Annotated[tuple[TransactionTopic, ...], between(0, 3)] = ()


class AddedPartition(Body, frozen=True):
    """The answer for one partition."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    results_by_partition: tuple[AddedPartition, ...] = ()


class AddedTransaction(Body, frozen=True):
    """The answer for one transaction."""

    transactional_id: String = ""
    topic_results: tuple[AddedTopic, ...] = ()


class AddPartitionsToTxnResponse(Body, frozen=True):
    """Which partitions are part of the transaction now."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    results_by_transaction: Annotated[tuple[AddedTransaction, ...], since(4)] = ()
    results_by_topic_v3_and_below: Annotated[tuple[AddedTopic, ...], between(0, 3)] = ()


class AddOffsetsToTxnRequest(Body, frozen=True):
    """Announce offsets of a group as part of a transaction."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Body, frozen=True):
    """Whether they may come."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class EndTxnRequest(Body, frozen=True):
    """Commit or abort a transaction."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Body, frozen=True):
    """Whether it ended so; from version 5 on with the producer id and epoch for the next one."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1  # KIP-890
    producer_epoch: Annotated[Int16, since(5)] = -1


class WrittenMarkerTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class WrittenMarker(Body, frozen=True):
    """The end of a producer's transaction, for some partitions."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: tuple[WrittenMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2)] = 0


class WriteTxnMarkersRequest(Body, frozen=True):
    """End transactions by force, as administrators do."""

    markers: tuple[WrittenMarker, ...] = ()


class WrittenMarkerPartition(Body, frozen=True):
    """The answer for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WrittenMarkerTopicResult(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[WrittenMarkerPartition, ...] = ()


class WrittenTxnMarker(Body, frozen=True):
    """The answer for one marker."""

    producer_id: Int64 = 0
    topics: tuple[WrittenMarkerTopicResult, ...] = ()


class WriteTxnMarkersResponse(Body, frozen=True):
    """What ended."""

    markers: tuple[WrittenTxnMarker, ...] = ()


class TxnCommitPartition(Body, frozen=True):
    """An offset and a remark of the consumer."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: String | None = ""


class TxnCommitTopic(Body, frozen=True):
    """Offsets of one topic."""

    name: String = ""
    partitions: tuple[TxnCommitPartition, ...] = ()


class TxnOffsetCommitRequest(Body, frozen=True):
    """Store offsets of a group when, and if, a transaction commits."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, since(3)] = -1  # KIP-447
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    topics: tuple[TxnCommitTopic, ...] = ()


class TxnCommittedPartition(Body, frozen=True):
    """The answer for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnCommittedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[TxnCommittedPartition, ...] = ()


class TxnOffsetCommitResponse(Body, frozen=True):
    """Which offsets are part of the transaction now."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnCommittedTopic, ...] = ()


ADD_PARTITIONS_TO_TXN = Api(24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, first=0, last=5, flexible=3)
ADD_OFFSETS_TO_TXN = Api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, first=0, last=4, flexible=3)
END_TXN = Api(26, EndTxnRequest, EndTxnResponse, first=0, last=5, flexible=3)
WRITE_TXN_MARKERS = Api(27, WriteTxnMarkersRequest, WriteTxnMarkersResponse, first=1, last=2, flexible=1)
TXN_OFFSET_COMMIT = Api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, first=0, last=5, flexible=3)
