"""Several gateways on one database are one cluster."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.gateway import HostPort
from headgate.gateway.cluster import Cluster
from headgate.wire.kafka.messages.fetch import FETCH
from headgate.wire.kafka.messages.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headgate.wire.kafka.messages.produce import PRODUCE
from tests.gateway.raw import RawClient, fetch_request, produce_request
from tests.gateway.servers import GatewayThread, running

TIMEOUT_S = 20.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.01)


def cluster(gateway: GatewayThread) -> Cluster:
    return gateway.gateway.services.cluster


def test_two_gateways_serve_one_topic(fresh_database: str, topic: str) -> None:
    with running(fresh_database) as one, running(fresh_database) as two:
        wait_for(lambda: len(cluster(one).live()) == 2, "the first does not see the second")
        assert cluster(one).live() == cluster(two).live()
        assert cluster(one).id == cluster(two).id
        assert cluster(one).controller == cluster(two).controller == min(cluster(one).live())

        admin = AdminClient({"bootstrap.servers": one.bootstrap})
        admin.create_topics([NewTopic(topic, 12, 1)])[topic].result(TIMEOUT_S)
        described = AdminClient({"bootstrap.servers": two.bootstrap}).list_topics(topic, TIMEOUT_S).topics[topic]
        leaders = Counter(partition.leader for partition in described.partitions.values())
        assert set(leaders) == {cluster(one).node_id, cluster(two).node_id}, "the load is not spread"

        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": two.bootstrap})
        for number in range(240):
            producer.produce(topic, b"%d" % number, partition=number % 12, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == [None] * 240
        consumer = Consumer({"bootstrap.servers": one.bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(12)])
        messages: list[Message] = []
        while len(messages) < 240:
            batch = consumer.consume(240, TIMEOUT_S)
            assert batch
            messages += batch
        consumer.close()
        assert sorted(int(message.value() or b"") for message in messages) == list(range(240))


def test_any_gateway_takes_and_serves_any_partition(fresh_database: str, topic: str) -> None:
    """Both write to one partition at the same time: every offset is given once, and both read the same."""
    with (
        running(fresh_database) as one,
        running(fresh_database) as two,
        RawClient(one.port) as first,
        RawClient(two.port) as second,
    ):
        first.create(topic)
        offsets: list[int] = []
        for number in range(100):
            for client in (first, second):
                client.send(PRODUCE, 9, produce_request(topic, b"%d" % number))
        for _ in range(100):
            for client in (first, second):
                (answer,) = client.receive(PRODUCE, 9)[1].responses[0].partition_responses
                assert answer.error_code == 0
                offsets.append(answer.base_offset)
        assert sorted(offsets) == list(range(200))
        for client in (first, second):
            asked = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(timestamp=-1),))
            answer = client.ask(LIST_OFFSETS, 4, ListOffsetsRequest(topics=(asked,)))
            assert answer.topics[0].partitions[0].offset == 200
        assert bytes(first.fetch(topic).responses[0].partitions[0].records) == bytes(
            second.fetch(topic).responses[0].partitions[0].records
        )


def test_a_reader_at_one_is_woken_by_a_writer_at_the_other(fresh_database: str, topic: str) -> None:
    with (
        running(fresh_database) as one,
        running(fresh_database) as two,
        RawClient(one.port) as writer,
        RawClient(two.port) as reader,
    ):
        writer.create(topic)
        assert reader.fetch(topic).responses[0].partitions[0].error_code == 0
        started = time.monotonic()
        reader.send(FETCH, 11, fetch_request(topic, max_wait_ms=15_000))
        writer.produce(topic, b"news")
        _, answer = reader.receive(FETCH, 11)
        assert answer.responses[0].partitions[0].high_watermark == 1
        assert time.monotonic() - started < 5


def test_who_leaves_is_gone_and_who_returns_is_the_same(fresh_database: str) -> None:
    with running(fresh_database) as one:
        with running(fresh_database) as two:
            wait_for(lambda: len(cluster(one).live()) == 2, "not seen")
            address, node_id = two.gateway.advertised, cluster(two).node_id
        wait_for(lambda: len(cluster(one).live()) == 1, "still there")
        with running(fresh_database, port=address.port) as again:
            assert cluster(again).node_id == node_id
            assert cluster(again).instance != cluster(two).instance


def test_two_at_one_address_are_told(fresh_database: str, caplog: pytest.LogCaptureFixture) -> None:
    address = HostPort("gateway.example", 9092)
    with running(fresh_database, advertised=address), running(fresh_database, advertised=address):
        wait_for(lambda: "another gateway advertises the same address" in caplog.text, "nobody said it")
