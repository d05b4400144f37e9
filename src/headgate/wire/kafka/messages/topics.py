"""Topics made, grown and deleted.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-4, KIP-195 (CreatePartitions).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import (
    NO_UUID,
    Body,
    Bool,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    between,
    nullable,
    since,
    tag,
)

__all__ = [
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "CreatableTopic",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "CreatedTopic",
    "CreatedTopicConfig",
    "DeletableTopic",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DeletedTopic",
    "ReplicaAssignment",
    "TopicConfig",
]


class ReplicaAssignment(Body, frozen=True):
    """Brokers for one partition."""

    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class TopicConfig(Body, frozen=True):
    """A setting."""

    name: String = ""
    value: String | None = ""


class CreatableTopic(Body, frozen=True):
    """A topic; -1 partitions or replicas mean the default."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[TopicConfig, ...] = ()


class CreateTopicsRequest(Body, frozen=True):
    """Create topics."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatedTopicConfig(Body, frozen=True):
    """A setting in force."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NO_UUID  # KIP-516
    error_code: Int16 = 0
    error_message: String | None = ""
    topic_config_error_code: Annotated[Int16, since(5), tag(0)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[tuple[CreatedTopicConfig, ...] | None, since(5)] = ()  # KIP-525


class CreateTopicsResponse(Body, frozen=True):
    """Which topics were created."""

    throttle_time_ms: Int32 = 0
    topics: tuple[CreatedTopic, ...] = ()


class DeletableTopic(Body, frozen=True):
    """A topic by name or id."""

    name: String | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Body, frozen=True):
    """Delete topics: by name up to version 5, by name or id from version 6 on."""

    topics: Annotated[tuple[DeletableTopic, ...], since(6)] = ()
    topic_names: Annotated[tuple[String, ...], between(1, 5)] = ()
    timeout_ms: Int32 = 0


class DeletedTopic(Body, frozen=True):
    """The answer for one topic."""

    name: Annotated[String | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5)] = None


class DeleteTopicsResponse(Body, frozen=True):
    """Which topics are gone."""

    throttle_time_ms: Int32 = 0
    responses: tuple[DeletedTopic, ...] = ()


class CreatePartitionsAssignment(Body, frozen=True):
    """Brokers for one new partition."""

    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(Body, frozen=True):
    """A topic and its new number of partitions."""

    name: String = ""
    count: Int32 = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


class CreatePartitionsRequest(Body, frozen=True):
    """Give topics more partitions."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Body, frozen=True):
    """Which topics have grown."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


CREATE_TOPICS = Api(19, CreateTopicsRequest, CreateTopicsResponse, first=2, last=7, flexible=5)
DELETE_TOPICS = Api(20, DeleteTopicsRequest, DeleteTopicsResponse, first=1, last=6, flexible=4)
CREATE_PARTITIONS = Api(37, CreatePartitionsRequest, CreatePartitionsResponse, first=0, last=3, flexible=2)
