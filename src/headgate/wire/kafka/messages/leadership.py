"""Leadership and quorum: elections, reassignments, the quorum; and what producers and transactions do.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-455 (reassignments), KIP-460 (elections), KIP-595
(DescribeQuorum), KIP-664 (DescribeProducers, DescribeTransactions, ListTransactions).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import NO_UUID, Body, Bool, Int8, Int16, Int32, Int64, String, Uint16, Uuid, since

__all__ = [
    "ALTER_PARTITION_REASSIGNMENTS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_TRANSACTIONS",
    "ELECT_LEADERS",
    "LIST_PARTITION_REASSIGNMENTS",
    "LIST_TRANSACTIONS",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribedTransaction",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectedPartition",
    "ElectedTopic",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ProducerState",
    "ProducersOfPartition",
    "ProducersOfTopic",
    "QuorumListener",
    "QuorumNode",
    "QuorumPartition",
    "QuorumReplica",
    "QuorumTopic",
    "ReassignedPartition",
    "ReassignedTopic",
]


class ElectTopic(Body, frozen=True):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class ElectLeadersRequest(Body, frozen=True):
    """Have leaders elected; null means of all partitions."""

    election_type: Annotated[Int8, since(1)] = 0  # KIP-460
    topic_partitions: tuple[ElectTopic, ...] | None = ()
    timeout_ms: Int32 = 60000


class ElectedPartition(Body, frozen=True):
    """What became of one."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ElectedTopic(Body, frozen=True):
    """Partitions of one topic."""

    topic: String = ""
    partition_result: tuple[ElectedPartition, ...] = ()


class ElectLeadersResponse(Body, frozen=True):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: tuple[ElectedTopic, ...] = ()


class ReassignPartition(Body, frozen=True):
    """Where a partition is to be; null takes a reassignment back."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] | None = None


class ReassignTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[ReassignPartition, ...] = ()


class AlterPartitionReassignmentsRequest(Body, frozen=True):
    """Move partitions."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True  # KIP-860
    topics: tuple[ReassignTopic, ...] = ()


class ReassignedPartition(Body, frozen=True):
    """What became of one."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReassignedTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[ReassignedPartition, ...] = ()


class AlterPartitionReassignmentsResponse(Body, frozen=True):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: tuple[ReassignedTopic, ...] = ()


class ReassignmentsOfTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class ListPartitionReassignmentsRequest(Body, frozen=True):
    """Ask which partitions are being moved; null means any."""

    timeout_ms: Int32 = 60000
    topics: tuple[ReassignmentsOfTopic, ...] | None = None


class OngoingPartition(Body, frozen=True):
    """A partition that is being moved."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


class OngoingTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[OngoingPartition, ...] = ()


class ListPartitionReassignmentsResponse(Body, frozen=True):
    """The reassignments under way."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: tuple[OngoingTopic, ...] = ()


class AskedQuorumPartition(Body, frozen=True):
    """A partition."""

    partition_index: Int32 = 0


class AskedQuorumTopic(Body, frozen=True):
    """A topic of metadata."""

    topic_name: String = ""
    partitions: tuple[AskedQuorumPartition, ...] = ()


class DescribeQuorumRequest(Body, frozen=True):
    """Ask who votes."""

    topics: tuple[AskedQuorumTopic, ...] = ()


class QuorumReplica(Body, frozen=True):
    """A voter or an observer."""

    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = NO_UUID  # KIP-853
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1)] = -1  # KIP-836
    last_caught_up_timestamp: Annotated[Int64, since(1)] = -1


class QuorumPartition(Body, frozen=True):
    """The quorum of a partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()


class QuorumTopic(Body, frozen=True):
    """A topic of metadata."""

    topic_name: String = ""
    partitions: tuple[QuorumPartition, ...] = ()


class QuorumListener(Body, frozen=True):
    """Where a voter listens."""

    name: String = ""
    host: String = ""
    port: Uint16 = 0


class QuorumNode(Body, frozen=True):
    """A voter."""

    node_id: Int32 = 0
    listeners: tuple[QuorumListener, ...] = ()


class DescribeQuorumResponse(Body, frozen=True):
    """The quorum."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2)] = ""
    topics: tuple[QuorumTopic, ...] = ()
    nodes: Annotated[tuple[QuorumNode, ...], since(2)] = ()  # KIP-853


class ListTransactionsRequest(Body, frozen=True):
    """Ask which transactions there are."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, since(1)] = -1  # KIP-994
    transactional_id_pattern: Annotated[String | None, since(2)] = None


class ListedTransaction(Body, frozen=True):
    """A transaction."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Body, frozen=True):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()


class DescribeTransactionsRequest(Body, frozen=True):
    """Ask about transactions."""

    transactional_ids: tuple[String, ...] = ()


class TransactionTopic(Body, frozen=True):
    """Partitions that a transaction has written to."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedTransaction(Body, frozen=True):
    """A transaction."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TransactionTopic, ...] = ()


class DescribeTransactionsResponse(Body, frozen=True):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()


class AskedProducersTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class DescribeProducersRequest(Body, frozen=True):
    """Ask who has written to partitions."""

    topics: tuple[AskedProducersTopic, ...] = ()


class ProducerState(Body, frozen=True):
    """An idempotent producer."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class ProducersOfPartition(Body, frozen=True):
    """The producers that have written to a partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: tuple[ProducerState, ...] = ()


class ProducersOfTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[ProducersOfPartition, ...] = ()


class DescribeProducersResponse(Body, frozen=True):
    """The producers of each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[ProducersOfTopic, ...] = ()


ELECT_LEADERS = Api(43, ElectLeadersRequest, ElectLeadersResponse, first=0, last=2, flexible=2)
ALTER_PARTITION_REASSIGNMENTS = Api(
    45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, first=0, last=1, flexible=0
)
LIST_PARTITION_REASSIGNMENTS = Api(
    46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, first=0, last=0, flexible=0
)
DESCRIBE_QUORUM = Api(55, DescribeQuorumRequest, DescribeQuorumResponse, first=0, last=2, flexible=0)
DESCRIBE_PRODUCERS = Api(61, DescribeProducersRequest, DescribeProducersResponse, first=0, last=0, flexible=0)
DESCRIBE_TRANSACTIONS = Api(65, DescribeTransactionsRequest, DescribeTransactionsResponse, first=0, last=0, flexible=0)
LIST_TRANSACTIONS = Api(66, ListTransactionsRequest, ListTransactionsResponse, first=0, last=2, flexible=0)
