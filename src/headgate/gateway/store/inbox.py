"""Messages that SQL has written move into the log, each exactly once: in one transaction.

Rows that cannot be appended are set aside with their reason, in `kafka.inbox_rejected`, and the others go on. What is
known to be wrong is found beforehand. Whatever else fails is tried again in halves, until the row that is to blame is
alone; but never for what the server says of itself, such as a full disk.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa

from headgate.commitlog.append import APPEND_SQL, append_arguments, outcomes
from headgate.commitlog.configs import is_compacted
from headgate.commitlog.parameters import TYPES_SQL, register
from headgate.commitlog.prepare import Batch, Rules, prepare, rules_of
from headgate.gateway.store.statements import sql
from headgate.gateway.store.writer import Committed
from headgate.kernels.log.encode_rows import encode_headers, encode_rows
from headgate.kernels.log.partitioner import murmur2
from headgate.model import ProtocolError
from headgate.wire.kafka.error_codes import ErrorCode

__all__ = ["Inbox"]

logger = logging.getLogger(__name__)

_MAX_ROWS, _MAX_BYTES = 10_000, 4 << 20
_LOOK_ALL_S = 60.0
_POSITIVE, _NO_LIMIT = 0x7FFFFFFF, 2**62
# What says nothing about a row: the server, its disk, its locks, our rights.
_NOT_A_ROW = (psycopg.OperationalError, psycopg.InternalError, psycopg.ProgrammingError, psycopg.InterfaceError)
_NONE = -1

Numbers: TypeAlias = npt.NDArray[np.int64]
Topics: TypeAlias = Mapping[int, tuple[dict[str, str], list[int]]]  # settings and partitions, by id


class _Messages:
    """Rows of `kafka.inbox`, as columns."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        ids, topics, partitions, keys, values, headers, times = zip(*rows, strict=True)
        self.rows = rows
        self.ids = ids
        self.topics: Numbers = np.array(topics, np.int64)
        self.partitions: Numbers = np.array([_NONE if each is None else each for each in partitions], np.int64)
        self.is_free = np.array([each is None for each in partitions])  # the gateway chooses the partition
        self.keys = pa.array(keys, pa.binary())
        self.has_key = self.keys.is_valid().to_numpy(zero_copy_only=False)
        self.values = pa.array(values, pa.binary())
        self.times: Numbers = np.array(times, np.int64)
        self.headers, self.wrong = _headers(headers)

    def batch(self, places: Numbers, rules: Rules) -> Batch:
        """Some of them, as one batch."""
        chosen = pa.array(places)
        keys, values, headers = (column.take(chosen) for column in (self.keys, self.values, self.headers))
        (batch,) = prepare(encode_rows(keys, values, headers, self.times[places]), rules)
        return batch


def _headers(texts: Sequence[str]) -> tuple[pa.Array, dict[int, str]]:
    """As records have them; and which rows have some that cannot be read. Most rows have the same."""
    encoded = pa.array(texts).dictionary_encode()
    forms: list[bytes] = []
    reasons: dict[int, str] = {}
    for index, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            forms.append(encode_headers(text))
        except ProtocolError as error:
            forms.append(b"")
            reasons[index] = error.message
    indices = encoded.indices.to_numpy()
    wrong = (
        {place: reasons[int(index)] for place, index in enumerate(indices) if int(index) in reasons} if reasons else {}
    )
    return pa.array(forms, pa.binary()).take(encoded.indices), wrong


class _Floor:
    """From which id on rows may be waiting.

    While a transaction elsewhere is open, such as a backup's, PostgreSQL cannot remove rows that were taken, and to
    pass over them takes longer the more there are. But an id may be given long before its row is committed: so all
    that wrote when an id had been given must have ended, and what they left must have been taken, before it counts.
    Now and then everything is looked through, in case somebody chose an id of his own.
    """

    def __init__(self) -> None:
        self.least_id = 0
        self._given = 0  # the last id, when looked at before
        self._next: tuple[int, int] | None = None  # an id, and the transaction before which all must have ended
        self._is_safe = False
        self._reset_at = 0.0

    async def look(self, connection: psycopg.AsyncConnection) -> bool:
        """Before everything is taken: whether there is anything. One question, because it is asked all the time."""
        now = time.monotonic()
        if now - self._reset_at >= _LOOK_ALL_S:
            self.least_id, self._next, self._given, self._reset_at = 0, None, 0, now
        given, oldest, waits = await _row(connection, "inbox_moment", self.least_id)
        self._is_safe = self._next is not None and oldest >= self._next[1]
        if self._next is None and self._given >= self.least_id:
            (newest,) = await _row(connection, "inbox_mark")
            self._next = self._given, newest
        self._given = given
        return bool(waits)

    def emptied(self) -> None:
        """After everything was taken."""
        if self._is_safe and self._next is not None:
            self.least_id, self._next, self._is_safe = self._next[0] + 1, None, False


async def _row(connection: psycopg.AsyncConnection, name: str, *values: Any) -> tuple[Any, ...]:
    row = await (await connection.execute(sql(name), values)).fetchone()
    assert row is not None
    return row


class Inbox:
    """Empties `kafka.inbox`. Messages without a key go to the partitions in turn."""

    def __init__(self, on_commit: Committed, on_rejected: Callable[[int], None] = lambda count: None) -> None:
        self._on_commit = on_commit
        self._on_rejected = on_rejected
        self._turns: Counter[int] = Counter()
        self._floor = _Floor()
        self._connection: psycopg.AsyncConnection | None = None

    async def drain(self, connection: psycopg.AsyncConnection) -> None:
        """Until there is nothing more."""
        if connection is not self._connection:
            row = await (await connection.execute(TYPES_SQL)).fetchone()
            assert row is not None
            register(connection, *row)
            await connection.execute(sql("pass_fences"))
            # It may be one to another server, where less has happened.
            self._connection, self._floor = connection, _Floor()
        count, size = int(await self._floor.look(connection)), _MAX_ROWS
        while count:
            try:
                count = await self._move(connection, size)
            except _NOT_A_ROW:
                raise
            except Exception as error:
                if size == 1:
                    await self._reject_oldest(connection, error)
                size = max(size // 2, 1)
            else:
                size = min(size * 2, _MAX_ROWS)
        self._floor.emptied()

    async def _move(self, connection: psycopg.AsyncConnection, most: int) -> int:
        """How many rows have left the inbox."""
        async with connection.transaction(), connection.cursor(binary=True) as cursor:
            await cursor.execute(sql("take_inbox"), [most, _MAX_BYTES, self._floor.least_id])
            rows = await cursor.fetchall()
            if not rows:
                return 0
            messages = _Messages(rows)
            topics = await self._topics(connection, messages)
            placed, rejected = self._placed(messages, topics)
            if rejected:
                await cursor.executemany(sql("reject_taken"), [(*rows[at], why) for at, why in rejected.items()])
            batches = list(_batches(messages, placed, topics))
            results = []
            if batches:
                await cursor.execute(APPEND_SQL, append_arguments(batches, is_durable=True))
                results = outcomes(await cursor.fetchall())
            if any(outcome.error is not ErrorCode.NONE for outcome in results):
                raise ValueError(
                    "a partition went away meanwhile"
                )  # nothing was taken, then; it is found out next time
        for (part_id, batch), outcome in zip(batches, results, strict=True):
            self._on_commit(part_id, batch, outcome)
        self._tell(rejected)
        return len(rows)

    async def _topics(self, connection: psycopg.AsyncConnection, messages: _Messages) -> Topics:
        cursor = await connection.execute(sql("inbox_topics"), [np.unique(messages.topics).tolist()])
        return {topic_id: (configs, parts) for topic_id, configs, parts in await cursor.fetchall()}

    def _placed(self, messages: _Messages, topics: Topics) -> tuple[Numbers, dict[int, str]]:
        """The partition of every message, or -1 and the reason why it has none."""
        placed: Numbers = np.full(len(messages.ids), _NONE, np.int64)
        rejected = dict(messages.wrong)
        for topic_id in np.unique(messages.topics).tolist():
            places = np.flatnonzero(messages.topics == topic_id)
            if topic_id not in topics:
                rejected |= dict.fromkeys(places.tolist(), "its topic is gone")
                continue
            configs, parts = topics[topic_id]
            if not parts:
                rejected |= dict.fromkeys(places.tolist(), "its topic has moved to another cluster")
                continue
            chosen = self._chosen(messages, places, topic_id, len(parts))
            for at in places[(chosen < 0) | (chosen >= len(parts))].tolist():
                rejected.setdefault(at, f"the topic has {len(parts)} partitions, and not {messages.partitions[at]}")
            if is_compacted(configs):
                for at in places[~messages.has_key[places]].tolist():
                    rejected.setdefault(at, "a message of a compacted topic must have a key")
            good = (chosen >= 0) & (chosen < len(parts))
            placed[places[good]] = np.array(parts, np.int64)[chosen[good]]
        if rejected:
            placed[np.fromiter(rejected, np.int64)] = _NONE
        return placed, rejected

    def _chosen(self, messages: _Messages, places: Numbers, topic_id: int, count: int) -> Numbers:
        """The index of each one's partition: as it says itself, by its key as Java's clients do it, or in turn."""
        chosen = messages.partitions[places]
        is_free, has_key = messages.is_free[places], messages.has_key[places]
        keyed = np.flatnonzero(is_free & has_key)
        chosen[keyed] = (murmur2(messages.keys.take(pa.array(places[keyed]))).astype(np.int64) & _POSITIVE) % count
        free = np.flatnonzero(is_free & ~has_key)
        chosen[free] = (self._turns[topic_id] + 1 + np.arange(len(free))) % count
        self._turns[topic_id] += len(free)
        return chosen

    async def _reject_oldest(self, connection: psycopg.AsyncConnection, error: Exception) -> None:
        await connection.execute(sql("reject_oldest"), [repr(error)])
        self._tell({0: repr(error)})

    def _tell(self, rejected: Mapping[int, str]) -> None:
        if rejected:
            reason = next(iter(rejected.values()))
            logger.error("messages of kafka.inbox are set aside", extra={"count": len(rejected), "why": reason})
            self._on_rejected(len(rejected))


def _batches(messages: _Messages, placed: Numbers, topics: Topics) -> Iterator[tuple[int, Batch]]:
    """One for each partition, in the order of the ids."""
    settings = {part: configs for configs, parts in topics.values() for part in parts}
    order = np.argsort(placed, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(placed[order])) + 1):
        part_id = int(placed[places[0]])
        if part_id != _NONE:
            yield part_id, messages.batch(places, _rules(settings[part_id]))


def _rules(configs: Mapping[str, Any]) -> Rules:
    # They were checked when they were written; the topic's rules may have become stricter since.
    return msgspec.structs.replace(
        rules_of(configs), max_bytes=_NO_LIMIT, after_max_ms=_NO_LIMIT, before_max_ms=_NO_LIMIT, needs_keys=False
    )
