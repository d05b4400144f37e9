"""Messages that SQL has written move into the log, each exactly once: in one transaction."""

from __future__ import annotations

import base64
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
import pyarrow as pa

from headgate.commitlog.append import APPEND_SQL, append_arguments, outcomes
from headgate.commitlog.parameters import TYPES_SQL, register
from headgate.commitlog.prepare import Batch, prepare, rules_of
from headgate.destinations.kafka.partitioner import murmur2
from headgate.gateway.store.statements import sql
from headgate.gateway.store.writer import Committed
from headgate.wire.kafka import Record, encode_batch
from headgate.wire.kafka.error_codes import ErrorCode

__all__ = ["Inbox"]

logger = logging.getLogger(__name__)

_MAX_ROWS, _MAX_BYTES = 1000, 4 << 20
_POSITIVE, _NO_LIMIT = 0x7FFFFFFF, 2**62


class _Message(msgspec.Struct, frozen=True):
    """A row of `kafka.inbox`."""

    id: int
    topic_id: int
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | dict[str, str] | None]]
    written_ms: int

    def record(self, offset: int) -> Record:
        headers = tuple((key, _header(value)) for key, value in self.headers)
        return Record(offset, self.written_ms, self.key, self.value, headers)


def _header(value: str | dict[str, str] | None) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


class Inbox:
    """Empties `kafka.inbox`. Messages without a key go to the partitions in turn."""

    def __init__(self, on_commit: Committed) -> None:
        self._on_commit = on_commit
        self._turns: Counter[int] = Counter()

    async def drain(self, connection: psycopg.AsyncConnection) -> None:
        """Until there is nothing more."""
        row = await (await connection.execute(TYPES_SQL)).fetchone()
        assert row is not None
        register(connection, *row)
        while await self._move(connection):
            pass

    async def _move(self, connection: psycopg.AsyncConnection) -> bool:
        async with connection.transaction():
            cursor = await connection.execute(sql("take_inbox"), [_MAX_ROWS, _MAX_BYTES])
            messages = sorted((_Message(*row) for row in await cursor.fetchall()), key=lambda message: message.id)
            if not messages:
                return False
            batches = self._batches(messages, await self._topics(connection, messages))
            cursor = connection.cursor(binary=True)
            await cursor.execute(APPEND_SQL, append_arguments(batches, is_durable=True))
            results = outcomes(await cursor.fetchall())
        for (part_id, batch), outcome in zip(batches, results, strict=True):
            if outcome.error is ErrorCode.NONE:
                self._on_commit(part_id, batch, outcome)
        return True

    async def _topics(
        self, connection: psycopg.AsyncConnection, messages: Sequence[_Message]
    ) -> dict[int, tuple[dict[str, str], list[int]]]:
        ids = list({message.topic_id for message in messages})
        cursor = await connection.execute(sql("inbox_topics"), [ids])
        return {topic_id: (configs, parts) for topic_id, configs, parts in await cursor.fetchall()}

    def _batches(
        self, messages: Sequence[_Message], topics: Mapping[int, tuple[dict[str, str], list[int]]]
    ) -> list[tuple[int, Batch]]:
        by_part: dict[tuple[int, int], list[_Message]] = defaultdict(list)
        for message in messages:
            if message.topic_id not in topics:
                logger.warning("a message for a topic that was deleted is dropped")
                continue
            _, parts = topics[message.topic_id]
            by_part[message.topic_id, parts[self._partition(message, len(parts))]].append(message)
        return [(part_id, _batch(of_part, topics[topic_id][0])) for (topic_id, part_id), of_part in by_part.items()]

    def _partition(self, message: _Message, count: int) -> int:
        if message.partition is not None:
            return message.partition
        if message.key is None:
            self._turns[message.topic_id] += 1
            return self._turns[message.topic_id] % count
        return (int(murmur2(pa.array([message.key], pa.binary()))[0]) & _POSITIVE) % count


def _batch(messages: Sequence[_Message], configs: Mapping[str, Any]) -> Batch:
    records = [message.record(index) for index, message in enumerate(messages)]
    # They were checked when they were written; the topic's rules may have become stricter since.
    rules = msgspec.structs.replace(
        rules_of(configs), max_bytes=_NO_LIMIT, after_max_ms=_NO_LIMIT, before_max_ms=_NO_LIMIT, needs_keys=False
    )
    (batch,) = prepare(encode_batch(records), rules)
    return batch
