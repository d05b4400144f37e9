"""Reading topics of a cluster, without Spark."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.model import ConfigError, ConnectError, StateError, UsageError
from headgate.sources.base import Lag
from headgate.sources.kafka.cluster import KafkaTopics
from headgate.sources.kafka.offsets import Bounds, Partition, Range, Reached
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.kafka.source import KafkaSource
from tests.contract.destinations.cluster import MockCluster


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with MockCluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.servers, "linger.ms": 5})
        for topic in ("orders", "users"):
            for number in range(2500):
                headers: Any = [("a", b"1"), ("a", None)] if number == 7 else None
                value = None if number == 3 else f"v{number}"
                producer.produce(topic, value, f"k{number}", 1, timestamp=1000 + number, headers=headers)
        producer.flush()
        yield cluster.servers


def topics(servers: str, **options: str) -> KafkaTopics:
    given = {"subscribe": "orders", "requestTimeoutMs": "10000", "kafka.bootstrap.servers": servers} | options
    return KafkaTopics(KafkaSourceOptions.from_spark({key: text for key, text in given.items() if text}))


def test_bounds_of_topics_by_name_and_by_pattern(servers: str) -> None:
    for reader in (topics(servers, subscribe="orders, users"), topics(servers, subscribe="", subscribePattern=".*rs")):
        found = reader.bounds()
        reader.close()
        assert sorted(found) == [Partition(topic, n) for topic in ("orders", "users") for n in range(4)]
        assert found[Partition("users", 1)] == Bounds(0, 2500)
        assert found[Partition("users", 0)] == Bounds(0, 0)


def test_a_range_is_read_exactly(servers: str) -> None:
    reader = pickle.loads(pickle.dumps(topics(servers)))
    rows = pa.Table.from_batches(reader.read(Range(Partition("orders", 1), 2, 1300)))
    again = pa.Table.from_batches(reader.read(Range(Partition("orders", 1), 2, 1300)))
    reader.close()
    assert rows == again
    assert rows["offset"].to_pylist() == list(range(2, 1300))
    assert rows["key"].to_pylist() == [f"k{n}".encode() for n in range(2, 1300)]
    assert rows["value"].to_pylist()[:3] == [b"v2", None, b"v4"]
    assert rows["_op"].to_pylist()[:3] == ["insert", "delete", "insert"]
    assert rows["headers"].to_pylist()[5] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert not rows["headers"].to_pylist()[0]
    assert rows["timestamp"].cast(pa.int64()).to_pylist()[0] == 1_002_000
    assert set(rows["timestampType"].to_pylist()) == {0}
    positions = rows["_position"].to_pylist()
    assert positions == sorted(set(positions))
    assert positions[0] == "orders-1-0000000000000000002"


def test_the_end_of_a_partition_ends_a_range(servers: str) -> None:
    reader = topics(servers)
    rows = pa.Table.from_batches(reader.read(Range(Partition("orders", 1), 2400, 2500)))
    reader.close()
    assert rows["offset"].to_pylist() == list(range(2400, 2500))


def test_a_group_is_told_what_was_delivered(servers: str) -> None:
    reader = topics(servers, groupId="watchers")
    reader.commit(Reached({Partition("orders", 1): 42}))
    reader.close()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "watchers"})
    assert consumer.committed([TopicPartition("orders", 1)], timeout=10)[0].offset == 42
    consumer.close()


def test_messages_that_are_gone(servers: str) -> None:
    reader = topics(servers)
    with pytest.raises(StateError, match="out of range"):
        list(reader.read(Range(Partition("orders", 1), 5000, 5001)))
    reader.close()


def test_what_is_wrong_is_said(servers: str) -> None:
    missing = topics(servers, subscribe="", subscribePattern="[")
    with pytest.raises(UsageError, match="subscribePattern"):
        missing.bounds()
    missing.close()
    with pytest.raises(ConfigError, match=re.escape("no.such.setting")):
        topics(servers, **{"kafka.no.such.setting": "1"}).bounds()
    away = topics("127.0.0.1:1", requestTimeoutMs="300")
    with pytest.raises(ConnectError):
        away.bounds()
    away.close()
    with pytest.raises(UsageError, match="which topics"):
        topics(servers, subscribe="")
    with pytest.raises(UsageError, match="both given"):
        topics(servers, subscribePattern="x")
    with pytest.raises(UsageError, match="no servers"):
        KafkaSourceOptions.from_spark({"subscribe": "x"})


def test_a_password_is_never_shown(servers: str) -> None:
    options = KafkaSourceOptions.from_spark(
        {"subscribe": "t", "kafka.bootstrap.servers": servers, "kafka.sasl.password": "hunter2hunter2"}
    )
    assert "hunter2" not in repr(options)


def test_how_many_messages_wait(servers: str) -> None:
    given = {"subscribe": "orders", "requestTimeoutMs": "10000", "kafka.bootstrap.servers": servers}
    source = KafkaSource("s", given, "o")
    assert source.lag(None) == Lag(rows=2500)
    assert source.lag(Reached({Partition("orders", 1): 2400}).to_offset()) == Lag(rows=100)
    assert source.reached(Reached({Partition("orders", 1): 2400}).to_offset()) == {"orders/1": 2400}
    late = KafkaSource("s", given | {"startingOffsets": "latest"}, "o")
    assert late.lag(None) == Lag(rows=0)
