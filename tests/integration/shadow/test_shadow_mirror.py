"""What is mirrored is what was written, byte by byte, and every offset is where the map says."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from headgate.model import OccupiedError, StateError
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread
from tests.integration.shadow.mirroring import Mirror, consumed, offsets_by_map

NOW = int(time.time() * 1000) - 600_000  # old ones would be deleted
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


def create(servers: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    for made in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        made.result(30)


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for gone in admin.delete_topics([topic], operation_timeout=30).values():
        gone.result(30)


def write(servers: str, topic: str, rows: list[dict[str, Any]], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 2, **settings})
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(30) == 0


def messages(n: int, partition: int, tag: str = "v") -> list[dict[str, Any]]:
    return [
        {
            "partition": partition,
            "key": None if i % 7 == 3 else b"k%d" % (i % 5),
            "value": None if i % 11 == 5 else f"{tag}-{i}".encode() * (1 + i % 9),
            "headers": [("h", b"1"), ("h", None), ("other", b"\0\xff")] if i % 3 == 0 else None,
            "timestamp": NOW + i * 1000,
        }
        for i in range(n)
    ]


def assert_mirrored(url: str, here: str, there: str, topic: str, partitions: int) -> list[list[tuple[Any, ...]]]:
    """The same messages in the same order, each at the offset that the map says."""
    sources, targets = consumed(here, topic, partitions), consumed(there, topic, partitions)
    for partition, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert [each[1:] for each in source] == [each[1:] for each in target]
        assert offsets_by_map(url, topic, partition, [each[0] for each in source]) == [each[0] for each in target]
    return sources


def test_bytes_are_equal_whatever_the_compression(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 3)
    for codec in CODECS:
        for partition in (0, 2):
            write(gateway.bootstrap, topic, messages(40, partition, codec), **{"compression.type": codec})
    mirror = Mirror(url, kafka.servers).ensure()
    assert mirror.to_the_end().rows == 2 * 40 * len(CODECS)
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 3)
    assert mirror.to_the_end().rows == 0
    write(gateway.bootstrap, topic, messages(10, 1))
    assert mirror.to_the_end().rows == 10
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 3)


def test_markers_and_aborted_messages_leave_no_trace_but_in_the_map(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    mirror = Mirror(url, kafka.servers).ensure()
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for each in messages(5, 0, f"t{number}"):
            producer.produce(topic, **each)
        producer.flush(30)
        if number == 3:
            assert mirror.to_the_end().rows == 16, "the third transaction was aborted, the last is open"
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        write(gateway.bootstrap, topic, messages(2, 0, f"p{number}"))
        if number == 3:
            mirror.to_the_end()
    mirror.to_the_end()
    (source,) = assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 1)
    assert len(source) == 4 * 5 + 6 * 2
    with psycopg.connect(url) as connection:
        row = connection.execute("select next_offset from kafka.partitions as p").fetchone()
    assert row is not None
    end = row[0]
    assert offsets_by_map(url, topic, 0, [end, end + 1]) == [len(source), None]
    kept = [each[0] for each in source]
    expected = [next((i for i, at in enumerate(kept) if at >= offset), len(kept)) for offset in range(end)]
    assert offsets_by_map(url, topic, 0, list(range(end))) == expected


def test_an_empty_topic_is_made_there_too(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    create(gateway.bootstrap, topic, 2, cleanup_policy="compact", max_message_bytes="2000000")
    Mirror(url, kafka.servers).ensure().to_the_end()
    assert consumed(kafka.servers, topic, 2) == [[], []]
    assert offsets_by_map(url, topic, 1, [0]) == [0]
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(30)
    assert configs["cleanup.policy"].value == "compact"
    assert configs["max.message.bytes"].value == "2000000"


def test_a_topic_with_other_messages_is_left_alone(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0))
    create(kafka.servers, topic, 1)
    write(kafka.servers, topic, messages(1, 0, "other"))
    with pytest.raises(OccupiedError, match="somebody else writes"):
        Mirror(url, kafka.servers).ensure().run()
    assert len(consumed(kafka.servers, topic, 1)[0]) == 1
    with psycopg.connect(url) as connection:
        row = connection.execute("select last_error from kafka.shadow_links").fetchone()
    assert row is not None
    assert "somebody else" in row[0]


def test_somebody_who_writes_later_is_found_out(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0))
    mirror = Mirror(url, kafka.servers).ensure()
    mirror.to_the_end()
    write(kafka.servers, topic, messages(1, 0, "other"))
    write(gateway.bootstrap, topic, messages(3, 0))
    with pytest.raises(OccupiedError, match="shadow_forget"):
        mirror.run()
    assert len(consumed(kafka.servers, topic, 1)[0]) == 4
    with psycopg.connect(url) as connection:
        row = connection.execute("select last_error from kafka.shadow_lag").fetchone()
    assert row is not None
    assert "somebody else" in row[0]


def test_topics_that_were_made_anew_are_refused(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0))
    mirror = Mirror(url, kafka.servers).ensure()
    mirror.to_the_end()
    delete(kafka.servers, topic)
    write(gateway.bootstrap, topic, messages(3, 0))
    with pytest.raises(StateError, match="is gone there"):
        mirror.run()
    create(kafka.servers, topic, 1)
    with pytest.raises(StateError, match="made anew"):
        mirror.run()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select kafka.shadow_forget('mirror', %s)", [topic])
    mirror.reached = None
    assert mirror.to_the_end().rows == 6, "after what the error says to do"
    delete(gateway.bootstrap, topic)
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0, "new"))
    mirror.reached = None
    with pytest.raises(StateError, match="deleted here and made anew"):
        mirror.run()


def test_another_number_of_partitions_is_refused(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 2)
    create(kafka.servers, topic, 3)
    with pytest.raises(StateError, match="3 partitions there and 2 here"):
        Mirror(url, kafka.servers).ensure().run()


def test_another_cluster_is_refused(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    Mirror(url, kafka.servers).ensure()
    with pytest.raises(StateError, match="the cluster of the link mirror"):
        Mirror(url, gateway.bootstrap).ensure()
