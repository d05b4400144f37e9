"""Administration through real clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    AskedTopic,
    DescribableTopic,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from headgate.wire.kafka.messages.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from headgate.wire.kafka.messages.storage import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, LogDirTopic
from headgate.wire.kafka.messages.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    DeletableTopic,
    DeleteTopicsRequest,
    ReplicaAssignment,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread
from tests.integration.gateway.test_gateway_clients import read_confluent, write_confluent

TIMEOUT_S = 20.0


@pytest.fixture
def admin(gateway: GatewayThread) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap})


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[RawClient]:
    with RawClient(gateway.port) as connected:
        yield connected


def done(futures: dict[Any, Future[Any]]) -> Any:
    """The result of the only one."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def refusal(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as raised:
        done(futures)
    error: KafkaError = raised.value.args[0]
    return error.code()


def test_topics_are_made_described_grown_and_deleted(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 3, 1)]))
    described = done(admin.describe_topics(TopicCollection([topic])))
    assert len(described.partitions) == 3
    assert refusal(admin.create_topics([NewTopic(topic, 3, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 5
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS
    done(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert refusal(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (CreatableTopic(name="a/b", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="zero", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="none", num_partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(name="both", num_partitions=2, assignments=(ReplicaAssignment(broker_ids=(1,)),)),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            CreatableTopic(
                name="gap",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(ReplicaAssignment(partition_index=1, broker_ids=(1,)),),
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(
                name="nobody",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(ReplicaAssignment(partition_index=0, broker_ids=(99999,)),),
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, (CreatableTopic, ErrorCode)) else None,
)
def test_topics_that_cannot_be_made(client: RawClient, asked: CreatableTopic, code: ErrorCode) -> None:
    answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(asked,)))
    assert answer.topics[0].error_code == code


def test_topics_made_by_assignment_by_default_and_only_checked(client: RawClient, topic: str) -> None:
    node = client.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers[0].broker_id
    assigned = CreatableTopic(
        name=f"{topic}-a",
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(ReplicaAssignment(partition_index=index, broker_ids=(node,)) for index in (1, 0)),
    )
    default = CreatableTopic(name=f"{topic}-d", num_partitions=-1, replication_factor=-1)
    twice = CreatableTopic(name=f"{topic}-t", num_partitions=1, replication_factor=1)
    answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(assigned, default, twice, twice)))
    got = [(each.error_code, each.num_partitions) for each in answer.topics]
    assert got == [(0, 2), (0, 1), (ErrorCode.INVALID_REQUEST, -1), (ErrorCode.INVALID_REQUEST, -1)]
    assert {config.name: config.value for config in answer.topics[0].configs}["cleanup.policy"] == "delete"
    checked = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(twice,), validate_only=True))
    assert checked.topics[0].error_code == 0
    asked = MetadataRequest(topics=(AskedTopic(name=f"{topic}-t"),), allow_auto_topic_creation=False)
    assert client.ask(METADATA, 9, asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id(client: RawClient, topic: str) -> None:
    client.create(topic)
    uuid = client.ask(METADATA, 12, MetadataRequest(topics=(AskedTopic(name=topic),))).topics[0].topic_id
    request = DeleteTopicsRequest(topics=(DeletableTopic(topic_id=uuid),))
    (gone,) = client.ask(DELETE_TOPICS, 6, request).responses
    assert (gone.name, gone.error_code) == (topic, 0)
    assert client.ask(DELETE_TOPICS, 6, request).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_configs_show_defaults_and_what_was_set(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000"})]))
    configs = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("1000", False)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].is_default) == ("delete", True)
    assert refusal(admin.create_topics([NewTopic(f"{topic}-x", 1, 1, config={"no.such": "1"})])) == (
        KafkaError.INVALID_CONFIG
    )


def test_configs_are_changed_one_by_one(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000"})]))

    def change(name: str, value: str, operation: AlterConfigOpType) -> dict[Any, Future[Any]]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        return admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])

    def value(name: str) -> str:
        found: str = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[name].value
        return found

    done(change("max.message.bytes", "5000", AlterConfigOpType.SET))
    done(change("retention.ms", "", AlterConfigOpType.DELETE))
    assert (value("max.message.bytes"), value("retention.ms")) == ("5000", str(7 * 86400 * 1000))
    done(change("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    assert value("cleanup.policy") == "delete,compact"
    done(change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    assert value("cleanup.policy") == "compact"
    assert refusal(change("retention.ms", "1", AlterConfigOpType.APPEND)) == KafkaError.INVALID_CONFIG
    assert refusal(change("retention.ms", "long", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert value("retention.ms") == str(7 * 86400 * 1000)


def test_all_configs_are_replaced(client: RawClient, admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000"})]))
    resource = AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=(AlterableConfig(name="segment.ms", value="9"),)
    )
    for validate_only in (True, False):
        configs = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        assert configs["retention.ms"].value == "1000"
        request = AlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        assert client.ask(ALTER_CONFIGS, 2, request).responses[0].error_code == 0
    configs = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert (configs["retention.ms"].is_default, configs["segment.ms"].value) == (True, "9")


def test_a_broker_shows_its_settings_and_lets_nobody_change_them(admin: AdminClient, client: RawClient) -> None:
    node = str(client.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).controller_id)
    configs = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, node)]))
    assert configs["num.partitions"].value == "1"
    assert configs["advertised.listeners"].value.startswith("PLAINTEXT://127.0.0.1:")
    assert all(config.is_read_only for config in configs.values())
    unknown = DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=4, resource_name="99999"),))
    assert client.ask(DESCRIBE_CONFIGS, 4, unknown).results[0].error_code == ErrorCode.INVALID_REQUEST
    resource = IncrementalAlterConfigsResource(
        resource_type=4, resource_name=node, configs=(IncrementallyAlterableConfig(name="num.partitions", value="3"),)
    )
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_log_append_time(gateway: GatewayThread, admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"message.timestamp.type": "LogAppendTime"})]))
    (sent,) = write_confluent(gateway.bootstrap, topic, [b"x"])
    (message,) = read_confluent(gateway.bootstrap, topic, 1)
    kind, time_ms = message.timestamp()
    assert kind == 2  # log append time
    assert sent.timestamp() == (2, time_ms)


def test_records_are_deleted(gateway: GatewayThread, admin: AdminClient, topic: str) -> None:
    write_confluent(gateway.bootstrap, topic, [b"%d" % number for number in range(10)], linger_ms=0)
    deleted = done(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    found = done(admin.list_offsets({TopicPartition(topic, 0): earliest}))
    assert found.offset == 4
    assert read_confluent(gateway.bootstrap, topic, 6, offset=4)[0].value() == b"4"
    assert refusal(admin.delete_records([TopicPartition(topic, 0, 99)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_describes_itself(admin: AdminClient, gateway: GatewayThread) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert described.cluster_id == gateway.gateway.services.cluster.id
    assert [(node.host, node.port) for node in described.nodes] == [("127.0.0.1", gateway.port)]
    assert described.authorized_operations


def test_log_dirs_have_sizes(client: RawClient, gateway: GatewayThread, topic: str) -> None:
    write_confluent(gateway.bootstrap, topic, [bytes(1000)])
    for asked in (None, (LogDirTopic(topic=topic, partitions=(0, 7)),)):
        (log_dir,) = client.ask(DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=asked)).results
        (found,) = [each for each in log_dir.topics if each.name == topic]
        assert [each.partition_index for each in found.partitions] == [0]
        assert found.partitions[0].partition_size > 1000


def test_topics_come_page_by_page(client: RawClient, admin: AdminClient, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for future in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        future.result(TIMEOUT_S)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=tuple(DescribableTopic(name=name) for name in names), response_partition_limit=4, cursor=cursor
        )
        answer = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
        seen += [(each.name, part.partition_index) for each in answer.topics for part in each.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [(name, index) for name in names for index in range(3)]
    missing = DescribeTopicPartitionsRequest(topics=(DescribableTopic(name="nowhere"),))
    answer = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, missing)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    every = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest())
    assert set(names) <= {each.name for each in every.topics}


def test_kafka_pythons_admin(gateway: GatewayThread, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        assert admin.describe_cluster()["cluster_id"] == gateway.gateway.services.cluster.id
        assert admin.describe_log_dirs()
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()
