"""What there is: brokers, topics, partitions.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-700 (DescribeCluster), KIP-966
(DescribeTopicPartitions).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.messages.shared import Cursor
from headgate.wire.kafka.schema import NO_UUID, Body, Bool, Int8, Int16, Int32, String, Uuid, between, nullable, since

__all__ = [
    "DESCRIBE_CLUSTER",
    "DESCRIBE_TOPIC_PARTITIONS",
    "METADATA",
    "AskedTopic",
    "Broker",
    "DescribableTopic",
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribedPartition",
    "DescribedTopic",
    "MetadataRequest",
    "MetadataResponse",
    "PartitionMetadata",
    "TopicMetadata",
]


class AskedTopic(Body, frozen=True):
    """A topic by name, or by id from version 10 on."""

    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[String | None, nullable(10)] = ""


class MetadataRequest(Body, frozen=True):
    """Ask for brokers and topics. Null topics mean all; so does an empty list, in version 0 only."""

    topics: Annotated[tuple[AskedTopic, ...] | None, nullable(1)] = ()
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, between(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False  # KIP-430


class Broker(Body, frozen=True):
    """A broker and its advertised address."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1)] = None


class PartitionMetadata(Body, frozen=True):
    """A partition and who has it."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(5)] = ()


class TopicMetadata(Body, frozen=True):
    """A topic."""

    error_code: Int16 = 0
    name: Annotated[String | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: tuple[PartitionMetadata, ...] = ()
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(Body, frozen=True):
    """The brokers, and the topics with their partitions."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: tuple[Broker, ...] = ()
    cluster_id: Annotated[String | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: tuple[TopicMetadata, ...] = ()
    cluster_authorized_operations: Annotated[Int32, between(8, 10)] = -2147483648
    error_code: Annotated[Int16, since(13)] = 0


class DescribeClusterRequest(Body, frozen=True):
    """Ask for the brokers and the cluster id."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1  # KIP-919
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterBroker(Body, frozen=True):
    """A broker and its advertised address."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(Body, frozen=True):
    """The cluster."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648


class DescribableTopic(Body, frozen=True):
    """A topic by name."""

    name: String = ""


class DescribeTopicPartitionsRequest(Body, frozen=True):
    """Ask for topics page by page (KIP-966)."""

    topics: tuple[DescribableTopic, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribedPartition(Body, frozen=True):
    """A partition and who has it."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: tuple[Int32, ...] = ()


class DescribedTopic(Body, frozen=True):
    """A topic."""

    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: tuple[DescribedPartition, ...] = ()
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(Body, frozen=True):
    """One page, and where the next begins."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribedTopic, ...] = ()
    next_cursor: Cursor | None = None


METADATA = Api(3, MetadataRequest, MetadataResponse, first=0, last=13, flexible=9)
DESCRIBE_CLUSTER = Api(60, DescribeClusterRequest, DescribeClusterResponse, first=0, last=2, flexible=0)
DESCRIBE_TOPIC_PARTITIONS = Api(
    75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, first=0, last=0, flexible=0
)
