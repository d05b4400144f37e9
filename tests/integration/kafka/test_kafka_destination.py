"""The `kafka` destination against a cluster: positions, partitions, headers, and rows that cannot be sent."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.destinations.base import OWN_LANE, Lane, SendResult
from headgate.destinations.kafka import KafkaDestination, KafkaOptions, close_idle_clients
from headgate.kernels.log.partitioner import partitions_of
from headgate.model import DataError, OccupiedError, Position
from tests.contract.destinations.cluster import MockCluster

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as running:
        yield running
        close_idle_clients()


@pytest.fixture
def options(cluster: MockCluster) -> KafkaOptions:
    return KafkaOptions(servers=cluster.servers, delivery_timeout_s=5, connect_timeout_s=3)


@pytest.fixture
def topic(cluster: MockCluster) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    assert cluster.create(name) == PARTITIONS
    return name


def rows(topic: str, first: int, count: int, *, origin: str = "db", size: int = 9, **more: pa.Array) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = {
        "_topic": pa.array([topic] * count),
        "_message_id": pa.array([f"{origin}-{Position(number)}" for number in numbers]),
        "_payload": pa.array([f"{number:0{size}d}".encode() for number in numbers], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def keys(first: int, count: int) -> pa.Array:
    return pa.array([b"key-%d" % (number % 13) for number in range(first, first + count)], pa.binary())


def send(destination: KafkaDestination, *batches: pa.RecordBatch, lane: Lane = OWN_LANE) -> SendResult:
    with destination.open(lane) as sender:
        for batch in batches:
            sender.send(batch)
        return sender.finish()


def numbers(cluster: MockCluster, topic: str) -> list[int]:
    return [int(arrival.payload) for arrival in cluster.arrivals(topic)]


def test_the_partition_of_a_key_is_the_one_that_kafka_chooses(
    cluster: MockCluster, options: KafkaOptions, topic: str
) -> None:
    batch = rows(topic, 0, 100, _partition_key=keys(0, 100))
    send(KafkaDestination("k", options), batch)
    chosen = {int(arrival.payload): arrival.partition for arrival in cluster.arrivals(topic)}
    assert chosen == dict(enumerate(partitions_of(batch, np.full(100, PARTITIONS)).tolist()))


def test_each_partition_has_its_own_position(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", options, exclusive=True)
    whole = rows(topic, 0, 100, _partition_key=keys(0, 100))
    # An attempt that was cut off: two partitions came further than the others.
    places = partitions_of(whole, np.full(100, PARTITIONS))
    cut = [number < (30 if places[number] < 2 else 80) for number in range(100)]
    first = send(destination, whole.filter(pa.array(cut)))
    second = send(destination, whole)
    assert (first.duplicates, second.duplicates) == (0, sum(cut))
    assert sorted(numbers(cluster, topic)) == list(range(100))
    assert send(destination, whole).duplicates == 100


def test_rows_without_a_key_are_found_again(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", options, exclusive=True)
    send(destination, rows(topic, 0, 50))
    assert send(destination, rows(topic, 0, 60)).duplicates == 50
    assert sorted(numbers(cluster, topic)) == list(range(60))


def test_another_origin_in_the_topic_is_refused(options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", options, exclusive=True)
    send(destination, rows(topic, 0, 20, origin="other"))
    with pytest.raises(OccupiedError, match="somebody else writes"):
        send(destination, rows(topic, 20, 20))


def test_a_message_that_is_not_ours_is_refused(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers})
    producer.produce(topic, b"from elsewhere", partition=1)
    assert producer.flush(5) == 0
    with pytest.raises(OccupiedError):
        send(KafkaDestination("k", options, exclusive=True), rows(topic, 0, 1))


def test_a_position_from_another_number_of_partitions_drops_nothing(
    cluster: MockCluster, options: KafkaOptions, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers})
    for partition in range(PARTITIONS):
        last = f"db-{Position(1000)}".encode()
        producer.produce(
            topic, b"1000", partition=partition, headers=[("headgate-id", last), ("headgate-partitions", b"3")]
        )
    assert producer.flush(5) == 0
    assert send(KafkaDestination("k", options, exclusive=True), rows(topic, 0, 10)).duplicates == 0
    assert len(numbers(cluster, topic)) == 14


def test_dead_letters_come_last_and_leave_the_position(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", options, exclusive=True)
    send(destination, rows(topic, 10, 10, _partition=pa.array([0] * 10, pa.int64())))
    late = rows(topic, 3, 2, _partition=pa.array([0] * 2, pa.int64()))
    assert send(destination, late, lane=Lane(is_late=True)).duplicates == 0
    result = send(destination, rows(topic, 10, 11, _partition=pa.array([0] * 11, pa.int64())))
    assert result.duplicates == 10
    assert numbers(cluster, topic) == [*range(10, 20), 3, 4, 20]
    ids = [arrival.message_id for arrival in cluster.arrivals(topic)]
    assert ids == sorted(ids)


def test_headers_say_id_and_epoch(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    send(KafkaDestination("k", options), rows(topic, 7, 1, _partition=pa.array([2], pa.int64())), lane=Lane(epoch=42))
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 2, 0)])
    message = consumer.poll(10)
    consumer.close()
    assert message is not None
    assert message.headers() == [("headgate-id", f"db-{Position(7)}".encode()), ("headgate-epoch", b"42")]


def test_a_row_that_is_too_large(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", replace(options, max_message_bytes=2000))
    with pytest.raises(DataError, match="too large") as raised:
        send(destination, rows(topic, 0, 1, size=3000))
    assert "max_message_bytes" in raised.value.remedy
    send(destination, rows(topic, 1, 1))
    assert numbers(cluster, topic) == [1]


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_partition_that_is_not_there(options: KafkaOptions, topic: str, exclusive: bool) -> None:
    destination = KafkaDestination("k", options, exclusive=exclusive)
    batch = rows(topic, 0, 1, _partition=pa.array([99], pa.int64()))
    if exclusive:
        with pytest.raises(DataError, match="no partition 99"):
            send(destination, batch)
        return
    for _ in range(3):  # librdkafka says it later if it does not know the topic yet, and at once if it does
        failure: dict[str, Any] = send(destination, batch).failures[0]
        assert (failure["topic"], failure["rows"], failure["error"]["kind"]) == (topic, 1, "data")
        send(destination, rows(topic, 0, 1, _partition=pa.array([0], pa.int64())))


def test_a_small_queue_only_slows_down(cluster: MockCluster, options: KafkaOptions, topic: str) -> None:
    destination = KafkaDestination("k", replace(options, queue_bytes=64 << 10, linger_s=0))
    one = pa.array([0] * 2000, pa.int64())
    assert send(destination, rows(topic, 0, 2000, size=1000, _partition=one)).rows == 2000
    assert numbers(cluster, topic) == list(range(2000))


def test_what_waits_in_a_lane_left_with_an_error_is_dropped(
    cluster: MockCluster, options: KafkaOptions, topic: str
) -> None:
    def leave() -> None:
        with KafkaDestination("k", replace(options, linger_s=4)).open() as sender:
            sender.send(rows(topic, 0, 5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    send(KafkaDestination("k", options), rows(topic, 5, 1))
    assert numbers(cluster, topic) == [5]


def test_a_child_process_makes_its_own_connection(cluster: MockCluster, topic: str) -> None:
    script = f"""
import gc
import os
import pyarrow as pa
from headgate.destinations.kafka import KafkaDestination, KafkaOptions

destination = KafkaDestination("k", KafkaOptions(servers={cluster.servers!r}))

def send(number):
    columns = {{"_topic": [{topic!r}], "_message_id": [f"db-0-{{number}}"], "_payload": [b"%d" % number]}}
    with destination.open() as sender:
        sender.send(pa.RecordBatch.from_pydict(columns))
        assert sender.finish().failures == ()

send(1)
child = os.fork()
gc.collect()  # whatever the child has of its parent's connections must not be waited for
send(2 if child else 3)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=30)
    assert sorted(numbers(cluster, topic)) == [1, 2, 3]
