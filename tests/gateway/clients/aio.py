"""aiokafka: asyncio, and older versions of the protocol than the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.gateway.clients import Client, Message

__all__ = ["AioKafka"]

_TIMEOUT_S = 30.0


class AioKafka(Client):
    name = "aiokafka"

    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.servers,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=20_000_000,
                acks="all",
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        each.value,
                        each.key,
                        each.partition,
                        each.timestamp or None,
                        headers=list(each.headers),
                    )
                    for each in messages
                ]
                await asyncio.gather(*sent)

        _run(run())

    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        async def run() -> list[Message]:
            consumer = self._consumer(None)
            consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
            async with consumer:
                return [_message(await consumer.getone()) for _ in range(count)]

        return sorted(_run(run()), key=lambda each: (each.partition, each.offset))

    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        async def run() -> list[Message]:
            consumer = self._consumer(group, topic)
            async with consumer:
                found = [_message(await consumer.getone()) for _ in range(count)]
                ends = {TopicPartition(topic, each.partition): each.offset + 1 for each in found}
                await consumer.commit(ends)
                return found

        found: list[Message] = _run(run())
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        async def run() -> int | None:
            consumer = self._consumer(None)
            async with consumer:
                where = TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({where: timestamp}))[where]
                return None if found is None else int(found.offset)

        offset: int | None = _run(run())
        return offset

    def topics(self) -> set[str]:
        async def run() -> set[str]:
            async with self._consumer(None) as consumer:
                return set(await consumer.topics())

        found: set[str] = _run(run())
        return found

    def _consumer(self, group: str | None, *topics: str) -> Any:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=20_000_000,
        )


def _run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, _TIMEOUT_S))


def _message(received: Any) -> Message:
    return Message(
        received.value, received.key, tuple(received.headers), received.partition, received.timestamp, received.offset
    )
