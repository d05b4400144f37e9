"""kafka-python: everything in Python, and the newest versions of the protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.gateway.clients import Client, Message

__all__ = ["KafkaPython"]

_TIMEOUT_S = 30.0


class KafkaPython(Client):
    name = "kafka-python"
    null_headers = False  # it reads them, and refuses to send them

    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=20_000_000,
            acks="all",
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=each.value,
                    key=each.key,
                    headers=list(each.headers),
                    partition=each.partition,
                    timestamp_ms=each.timestamp or None,
                )
                for each in messages
            ]
            for future in sent:
                future.get(_TIMEOUT_S)
        finally:
            producer.close(timeout=5)

    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = self._consumer(None)
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        return sorted(_take(consumer, count), key=lambda each: (each.partition, each.offset))

    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return _take(consumer, count, commit=True)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer(None)
        try:
            where = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp})[where]
        finally:
            consumer.close()
        return None if found is None else int(found.offset)

    def topics(self) -> set[str]:
        consumer = self._consumer(None)
        try:
            return set(consumer.topics())
        finally:
            consumer.close()

    def _consumer(self, group: str | None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=20_000_000,
        )


def _take(consumer: Any, count: int, *, commit: bool = False) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
            for records in consumer.poll(timeout_ms=1000, max_records=count - len(found)).values():
                found += [
                    Message(each.value, each.key, tuple(each.headers), each.partition, each.timestamp, each.offset)
                    for each in records
                ]
        if commit:
            consumer.commit()
    finally:
        consumer.close()
    return found
