"""confluent-kafka: librdkafka under Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Received

from tests.gateway.clients import Client, Message

__all__ = ["Confluent"]


class Confluent(Client):
    name = "confluent-kafka"

    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "message.max.bytes": 20_000_000,
                "message.timeout.ms": 20_000,
                "on_delivery": lambda error, _: failures.append(error) if error else None,
            }
        )
        for each in messages:
            headers: Any = list(each.headers)
            producer.produce(topic, each.value, each.key, each.partition, timestamp=each.timestamp, headers=headers)
        assert producer.flush(30) == 0
        if failures:
            raise KafkaException(failures[0])

    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = self._consumer("nobody")
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        return sorted(_take(consumer, count), key=lambda each: (each.partition, each.offset))

    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return _take(consumer, count, commit=True)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer("nobody")
        try:
            found = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], timeout=10)[0]
        finally:
            consumer.close()
        return found.offset if found.offset >= 0 else None

    def topics(self) -> set[str]:
        return set(Producer({"bootstrap.servers": self.servers}).list_topics(timeout=10).topics)

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 20_000_000,
            }
        )


def _take(consumer: Consumer, count: int, *, commit: bool = False) -> list[Message]:
    found: list[Message] = []
    try:
        while len(found) < count:
            received = consumer.poll(20)
            assert received is not None, f"only {len(found)} of {count} messages came"
            if error := received.error():
                raise KafkaException(error)
            found.append(_message(received))
        if commit:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def _message(received: Received) -> Message:
    headers: Any = tuple(received.headers() or ())
    value: Any = received.value()
    key: Any = received.key()
    return Message(
        value,
        key,
        headers,
        received.partition() or 0,
        received.timestamp()[1],
        -1 if (n := received.offset()) is None else n,
    )
