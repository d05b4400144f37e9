"""Transactions as stock clients make them: what is committed is there, what is aborted never was."""

from __future__ import annotations

import asyncio
import warnings
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from tests.gateway.servers import GatewayThread
from tests.stock import both_servers

TIMEOUT_S = 30.0


@pytest.fixture(params=both_servers)
def gateway(request: pytest.FixtureRequest, gateway: GatewayThread) -> GatewayThread:
    """On the embedded server and on Debian's."""
    return gateway if request.param == "embedded" else request.getfixturevalue("stock_gateway")


@pytest.fixture
def name() -> str:
    """A transactional id that no other test has."""
    return f"x-{uuid4().hex[:10]}"


def producer(gateway: GatewayThread, name: str, **settings: object) -> Producer:
    made = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": name, **settings})
    made.init_transactions(TIMEOUT_S)
    return made


def values(gateway: GatewayThread, topic: str, *, committed: bool = True, partition: int = 0) -> list[str]:
    """What a reader of this isolation finds up to the end that is its own."""
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([Place(topic, partition, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no end"
            if (error := message.error()) is None:
                found.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_committed_is_there_and_aborted_is_not(gateway: GatewayThread, topic: str, name: str, codec: str) -> None:
    writer = producer(gateway, name, **{"compression.type": codec})
    for turn in range(6):
        writer.begin_transaction()
        for number in range(50):
            writer.produce(topic, f"{turn}-{number}", key="k")
        writer.flush(TIMEOUT_S)
        if turn % 2:
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)
    committed = [f"{turn}-{number}" for turn in (0, 2, 4) for number in range(50)]
    assert values(gateway, topic) == committed
    assert len(values(gateway, topic, committed=False)) == 300


def test_an_open_transaction_holds_up_what_comes_after_it(gateway: GatewayThread, topic: str, name: str) -> None:
    plain = Producer({"bootstrap.servers": gateway.bootstrap})
    plain.produce(topic, "before")
    assert plain.flush(TIMEOUT_S) == 0
    first, second = producer(gateway, name), producer(gateway, f"{name}-2")
    first.begin_transaction()
    first.produce(topic, "first")
    assert first.flush(TIMEOUT_S) == 0
    second.begin_transaction()
    second.produce(topic, "second")
    second.commit_transaction(TIMEOUT_S)
    plain.produce(topic, "plain")
    assert plain.flush(TIMEOUT_S) == 0
    assert values(gateway, topic) == ["before"]
    assert values(gateway, topic, committed=False) == ["before", "first", "second", "plain"]
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(Place(topic, 0), TIMEOUT_S) == (0, 1)
    consumer.close()
    first.commit_transaction(TIMEOUT_S)
    assert values(gateway, topic) == ["before", "first", "second", "plain"]


def test_a_second_producer_fences_the_first(gateway: GatewayThread, topic: str, name: str) -> None:
    """And what the first had begun is aborted."""
    zombie = producer(gateway, name)
    zombie.begin_transaction()
    zombie.produce(topic, "lost")
    assert zombie.flush(TIMEOUT_S) == 0
    heir = producer(gateway, name)
    heir.begin_transaction()
    heir.produce(topic, "kept")
    heir.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert values(gateway, topic) == ["kept"]


def test_offsets_and_messages_are_one(gateway: GatewayThread, topic: str, name: str) -> None:
    """From a topic to another, with the place where it goes on: aborted, neither is there; committed, both are."""
    out = f"{topic}-out"
    plain = Producer({"bootstrap.servers": gateway.bootstrap})
    for number in range(10):
        plain.produce(topic, str(number))
    assert plain.flush(TIMEOUT_S) == 0
    writer = producer(gateway, name)
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": f"g-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = consumer.consume(10, TIMEOUT_S)
    assert len(read) == 10
    for commits in (False, True):
        writer.begin_transaction()
        for message in read:
            writer.produce(out, (message.value() or b"") + b"!")
        places = [Place(topic, 0, 10)]
        writer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
        if commits:
            writer.commit_transaction(TIMEOUT_S)
        else:
            writer.abort_transaction(TIMEOUT_S)
        (stored,) = consumer.committed([Place(topic, 0)], TIMEOUT_S)
        assert stored.offset == (10 if commits else -1001)
    consumer.close()
    assert values(gateway, out) == [f"{number}!" for number in range(10)]


def test_aiokafka(gateway: GatewayThread, topic: str, name: str) -> None:
    async def run() -> None:
        writer = AIOKafkaProducer(bootstrap_servers=gateway.bootstrap, transactional_id=name)
        await writer.start()
        try:
            async with writer.transaction():
                await writer.send_and_wait(topic, b"kept")
                place = {TopicPartition(topic, 0): OffsetAndMetadata(7, "note")}
                await writer.send_offsets_to_transaction(place, f"g-{name}")
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"gone")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send_and_wait(topic, b"kept, too")
        finally:
            await writer.stop()
        reader = AIOKafkaConsumer(
            topic,
            bootstrap_servers=gateway.bootstrap,
            group_id=f"g-{name}",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await reader.start()
        try:
            assert await reader.committed(TopicPartition(topic, 0)) == 7
            reader.seek(TopicPartition(topic, 0), 0)
            found = [(await reader.getone()).value, (await reader.getone()).value]
            assert found == [b"kept", b"kept, too"]
        finally:
            await reader.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its sockets are its own
def test_kafka_python(gateway: GatewayThread, topic: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka
    writer = kafka.KafkaProducer(bootstrap_servers=gateway.bootstrap, transactional_id=name)
    writer.init_transactions()
    for value, commits in ((b"kept", True), (b"gone", False), (b"kept, too", True)):
        writer.begin_transaction()
        writer.send(topic, value)
        place = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(len(value), "note", -1)}
        writer.send_offsets_to_transaction(place, f"g-{name}")
        writer.flush(TIMEOUT_S)
        if commits:
            writer.commit_transaction()
        else:
            writer.abort_transaction()
    writer.close(timeout=5)
    reader = kafka.KafkaConsumer(
        bootstrap_servers=gateway.bootstrap,
        group_id=f"g-{name}",
        isolation_level="read_committed",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    partition = kafka.TopicPartition(topic, 0)
    assert reader.committed(partition) == len(b"kept, too")
    reader.assign([partition])
    reader.seek(partition, 0)
    assert [next(reader).value, next(reader).value] == [b"kept", b"kept, too"]
    assert reader.end_offsets([partition]) == {partition: 6}
    reader.close()
