"""Real clients write to the gateway and read from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyPartition

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.fetch import FETCH
from headgate.wire.kafka.messages.produce import PRODUCE
from tests.gateway.raw import RawClient, fetch_request, produce_request
from tests.gateway.servers import GatewayThread
from tests.stock import both_servers

HEADERS: list[tuple[str, str | bytes | None]] = [("k", b"1"), ("k", b"2"), ("empty", b""), ("none", None)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 20.0


@pytest.fixture(params=both_servers)
def gateway(request: pytest.FixtureRequest, gateway: GatewayThread) -> GatewayThread:
    """On the embedded server and on Debian's with its defaults."""
    if request.param == "embedded":
        return gateway
    on_stock: GatewayThread = request.getfixturevalue("stock_gateway")
    return on_stock


@contextmanager
def confluent_consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False} | names)
    try:
        yield consumer
    finally:
        consumer.close()


def read_confluent(bootstrap: str, topic: str, count: int, offset: int = 0) -> list[Message]:
    with confluent_consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.consume(count - len(messages), 1.0)
        for message in messages:
            assert message.error() is None
        return messages


def write_confluent(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[Message]:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5} | names)
    done: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        done.append(message)

    for value in values:
        producer.produce(topic, value, key=b"key", headers=HEADERS, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return done


def write_kafka_python(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> None:
    headers = [(name, value) for name, value in HEADERS if value is not None]
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
        sent = [producer.send(topic, value, key=b"key", headers=headers) for value in values]
        assert [each.get(TIMEOUT_S).offset for each in sent] == list(range(len(values)))


def read_kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)) as consumer:
        partition = PyPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value for record in records]
        return values


def write_aiokafka(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            sent = [await producer.send(topic, value, key=b"key") for value in values]
            assert [(await each).offset for each in sent] == list(range(len(values)))

    asyncio.run(write())


def read_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.seek_to_beginning()
            async with asyncio.timeout(TIMEOUT_S):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


WRITERS: dict[str, Callable[..., Any]] = {
    "confluent": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
}
READERS: dict[str, Callable[[str, str, int], list[bytes]]] = {
    "confluent": lambda *what: [message.value() or b"" for message in read_confluent(*what)],
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_client_writes_every_client_reads(gateway: GatewayThread, topic: str, writer: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
    values = [b"value %d" % number for number in range(200)]
    WRITERS[writer](gateway.bootstrap, topic, values)
    for reader, read in READERS.items():
        assert read(gateway.bootstrap, topic, len(values)) == values, reader


@pytest.mark.parametrize("codec", CODECS)
def test_compression_survives(gateway: GatewayThread, topic: str, codec: str) -> None:
    values = [b"x" * 1000 + b"%d" % number for number in range(50)]
    write_confluent(gateway.bootstrap, topic, values, compression_type=codec)
    assert [message.value() for message in read_confluent(gateway.bootstrap, topic, 50)] == values
    received = gateway.gateway.metrics.received_bytes
    write_confluent(gateway.bootstrap, topic, values, compression_type=codec)
    size = gateway.gateway.metrics.received_bytes - received
    assert (size < 20_000) == (codec != "none"), "the client did not compress"


def test_headers_keys_and_nulls_round_trip(gateway: GatewayThread, topic: str) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce(topic, value=None, key=None, headers=HEADERS, timestamp=1_700_000_000_123)
    producer.produce(topic, value=b"", key=b"")
    assert producer.flush(TIMEOUT_S) == 0
    first, second = read_confluent(gateway.bootstrap, topic, 2)
    assert first.headers() == HEADERS
    assert (first.key(), first.value(), first.timestamp()[1]) == (None, None, 1_700_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (b"", b"", None)


@pytest.mark.parametrize("acks", [0, 1, -1], ids=["acks0", "acks1", "all"])
def test_every_kind_of_acknowledgement(gateway: GatewayThread, topic: str, acks: int) -> None:
    write_confluent(gateway.bootstrap, topic, [b"a", b"b"], acks=acks)
    assert [message.value() for message in read_confluent(gateway.bootstrap, topic, 2)] == [b"a", b"b"]


@pytest.mark.parametrize("writer", WRITERS)
def test_idempotent_producers(gateway: GatewayThread, topic: str, writer: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
    values = [b"%d" % number for number in range(100)]
    WRITERS[writer](gateway.bootstrap, topic, values, enable_idempotence=True)
    assert READERS["confluent"](gateway.bootstrap, topic, 100) == values


def test_a_large_message(gateway: GatewayThread, topic: str) -> None:
    value = bytes(900_000)
    write_confluent(gateway.bootstrap, topic, [value, b"after"], message_max_bytes=1_000_000)
    first, second = read_confluent(gateway.bootstrap, topic, 2)
    assert (first.value(), second.value()) == (value, b"after")


def test_a_message_that_is_too_large_is_refused(gateway: GatewayThread, topic: str) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "message.max.bytes": 4_000_000})
    producer.produce(topic, bytes(2_000_000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_consumer_does_not_make_topics(gateway: GatewayThread, topic: str) -> None:
    with confluent_consumer(gateway.bootstrap) as consumer:
        assert consumer.list_topics(topic, TIMEOUT_S).topics[topic].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert topic not in consumer.list_topics(timeout=TIMEOUT_S).topics


def test_an_offset_that_is_not_there(gateway: GatewayThread, topic: str) -> None:
    write_confluent(gateway.bootstrap, topic, [b"only"])
    with confluent_consumer(gateway.bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 100)])
        messages = consumer.consume(1, TIMEOUT_S)
    error = messages[0].error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_offsets_by_time(gateway: GatewayThread, topic: str) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
    base = 1_700_000_000_000
    for number in range(5):
        producer.produce(topic, b"%d" % number, timestamp=base + number * 1000)
        assert producer.flush(TIMEOUT_S) == 0
    with confluent_consumer(gateway.bootstrap) as consumer:
        times = [base - 1, base + 1500, base + 4000, base + 4001]
        found = [consumer.offsets_for_times([TopicPartition(topic, 0, each)], TIMEOUT_S)[0].offset for each in times]
        assert found == [0, 2, 4, -1]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 5)


def test_an_unknown_partition_is_refused(gateway: GatewayThread, topic: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
        answer = client.ask(PRODUCE, 9, produce_request(topic, b"x", partition=7))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_reader_is_woken(gateway: GatewayThread, topic: str) -> None:
    """A long poll ends when there is something, not when its time is over."""
    with RawClient(gateway.port) as reader, RawClient(gateway.port) as writer:
        writer.create(topic)
        started = time.monotonic()
        reader.send(FETCH, 11, fetch_request(topic, max_wait_ms=15_000))
        writer.produce(topic, b"news")
        _, answer = reader.receive(FETCH, 11)
        assert time.monotonic() - started < 10
        assert answer.responses[0].partitions[0].high_watermark == 1
