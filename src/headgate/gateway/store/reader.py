"""Reading: batches from memory or PostgreSQL, and offsets by time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, Protocol

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.read import FETCH_SQL
from headgate.gateway.store.statements import sql
from headgate.gateway.store.tails import Buffer, Tails, served
from headgate.runtime.timings import Timings
from headgate.wire.kafka import place_batch, read_batch_header, read_records
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Bounds", "Fetched", "Found", "NoLimit", "Reader", "Room", "Want"]

logger = logging.getLogger(__name__)

Pool = AsyncConnectionPool[psycopg.AsyncConnection]


@dataclass(frozen=True, slots=True)
class Want:
    """A partition to read, from where, and at most how much."""

    part_id: int
    offset: int
    max_bytes: int
    is_committed: bool = False  # nothing behind the beginning of an open transaction


@dataclass(slots=True)
class Fetched:
    """What a partition had. The buffers are whole batches, one after the other.

    For a reader of committed messages `aborted` names the transactions whose batches it must leave out, by producer and
    first offset.
    """

    part_id: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    buffers: list[Buffer] = field(default_factory=list)
    size: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition begins and ends at a moment, and how far it is stable."""

    log_start_offset: int
    next_offset: int
    last_stable_offset: int

    def end(self, *, is_committed: bool) -> int:
        return self.last_stable_offset if is_committed else self.next_offset


@dataclass(frozen=True, slots=True)
class Found:
    """A record, by its offset and time."""

    offset: int
    timestamp: int


class Room(Protocol):
    """Memory for what is read."""

    def ask(self, wanted: int) -> int:
        """How much may be read; it counts from now on."""

    def keep(self, size: int) -> None:
        """How much was read."""


class NoLimit:
    """For those who have memory enough."""

    def ask(self, wanted: int) -> int:
        return wanted

    def keep(self, size: int) -> None: ...


class Reader:
    """Fetch and ListOffsets."""

    def __init__(self, pool: Pool, tails: Tails) -> None:
        self._pool = pool
        self._tails = tails
        self.timings = Timings()  # of reads, without the time that a Fetch waits for new data

    async def fetch(
        self, wants: Sequence[Want], *, max_bytes: int, min_bytes: int, max_wait_s: float, room: Room
    ) -> list[Fetched]:
        """One answer for each want, in their order, as soon as there are `min_bytes` or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_s
        while True:
            allowed = room.ask(max_bytes)
            began = loop.time()
            fetched = await self._read(wants, allowed)
            self.timings.observe(loop.time() - began)
            left_s = deadline - loop.time()
            if left_s <= 0 or self._is_enough(fetched, min(min_bytes, allowed)):
                room.keep(sum(each.size for each in fetched))
                return fetched
            room.keep(0)
            ends = [
                (each.part_id, each.last_stable_offset if want.is_committed else each.high_watermark, want.is_committed)
                for want, each in zip(wants, fetched, strict=True)
            ]
            await self._tails.wait(ends, left_s)

    def _is_enough(self, fetched: Sequence[Fetched], min_bytes: int) -> bool:
        is_wrong = any(each.error is not ErrorCode.NONE for each in fetched)
        return is_wrong or not fetched or sum(each.size for each in fetched) >= min_bytes

    async def _read(self, wants: Sequence[Want], max_bytes: int) -> list[Fetched]:
        """Those that lag first: what is in memory is there for them next time, too."""
        by_want = dict[Want, Fetched]()
        asked = [want for want in wants if not self._is_in_memory(want)]
        if asked:
            by_want = await self._ask(asked, max_bytes)
            max_bytes -= sum(each.size for each in by_want.values())
        for want in wants:
            if want not in by_want:
                is_first = all(each.size == 0 for each in by_want.values())
                by_want[want] = self._remember(want, max_bytes, is_first=is_first)
                max_bytes -= by_want[want].size
        return [by_want[want] for want in wants]

    def _is_in_memory(self, want: Want) -> bool:
        tail = self._tails.get(want.part_id)
        end = tail.end_for(is_committed=want.is_committed)
        if not tail.is_known or want.offset > tail.next_offset or end is None:
            return False
        return want.offset < tail.log_start_offset or want.offset >= end or tail.has(want.offset)

    def _remember(self, want: Want, max_bytes: int, *, is_first: bool) -> Fetched:
        tail = self._tails.get(want.part_id)
        fetched = Fetched(want.part_id, ErrorCode.NONE, tail.next_offset, tail.log_start_offset, tail.stable_offset)
        end = tail.end_for(is_committed=want.is_committed)
        if want.offset < tail.log_start_offset or want.offset > tail.next_offset:
            fetched.error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif end is None:
            pass  # something has come in while others were asked for: it is read the next time
        elif want.offset < end and tail.has(want.offset):
            limit = min(max_bytes, want.max_bytes)
            fetched.buffers, fetched.size, stop = tail.cached(want.offset, end, limit, is_first=is_first)
            if want.is_committed:
                fetched.aborted = tail.aborts.among(want.offset, stop)
        return fetched

    async def _ask(self, wants: Sequence[Want], max_bytes: int) -> dict[Want, Fetched]:
        fetched = {want: Fetched(want.part_id) for want in wants}
        columns = [want.part_id for want in wants], [want.offset for want in wants], [want.max_bytes for want in wants]
        committed = [want.is_committed for want in wants]
        for row in await self._rows(FETCH_SQL, [*columns, max_bytes, committed]):
            ord_, next_offset, log_start_offset, stable_offset, base_offset, _, data, producers, first_offsets = row
            want = wants[ord_ - 1]
            if data is not None:
                fetched[want].buffers += served(base_offset, memoryview(data))
                fetched[want].size += len(data)
            elif producers is not None:
                fetched[want].aborted = list(zip(producers, first_offsets, strict=True))
            else:
                self._bounds(want, fetched[want], next_offset, log_start_offset, stable_offset)
        return fetched

    def _bounds(
        self, want: Want, fetched: Fetched, next_offset: int | None, log_start_offset: int, stable_offset: int
    ) -> None:
        if next_offset is None:
            fetched.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        self._tails.moved(want.part_id, next_offset, log_start_offset, stable_offset, is_known=True)
        fetched.high_watermark, fetched.log_start_offset = next_offset, log_start_offset
        fetched.last_stable_offset = stable_offset
        if not log_start_offset <= want.offset <= next_offset:
            fetched.error = ErrorCode.OFFSET_OUT_OF_RANGE

    async def bounds(self, part_id: int) -> Bounds:
        """Where a partition begins and ends at this moment."""
        rows = await self._rows(sql("bounds"), [[part_id]])
        if not rows:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _, next_offset, log_start_offset, stable_offset = rows[0]
        self._tails.moved(part_id, next_offset, log_start_offset, stable_offset)
        return Bounds(log_start_offset, next_offset, stable_offset)

    async def at_time(self, part_id: int, timestamp: int) -> Found | None:
        """The first record of that time or later."""
        first = (await self.bounds(part_id)).log_start_offset
        while True:
            base_offset, last_offset, data = (await self._rows(sql("at_time"), [part_id, timestamp, first]))[0]
            if data is None:
                return None
            for record in _records(base_offset, data):
                if record.offset >= first and record.timestamp >= timestamp:
                    return record
            first = last_offset + 1  # it was the part of a batch that is deleted already

    async def max_timestamp(self, part_id: int) -> Found | None:
        """The first of the records with the greatest timestamp."""
        rows = await self._rows(sql("max_timestamp"), [part_id])
        if not rows:
            return None
        return await self.at_time(part_id, rows[0][0])

    async def _rows(self, statement: LiteralString | bytes, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            async with self._pool.connection() as connection, connection.cursor(binary=True) as cursor:
                await cursor.execute(statement, values)
                return await cursor.fetchall()
        except psycopg.OperationalError as error:
            logger.warning("the log cannot be read: %s", error)
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "PostgreSQL cannot be reached") from error


def _records(base_offset: int, data: bytes) -> list[Found]:
    """Markers are no records of anybody's."""
    batch = bytearray(data)
    place_batch(batch, base_offset, 0)
    if read_batch_header(memoryview(batch)).is_control:
        return []
    return [Found(record.offset, record.timestamp) for record in read_records(memoryview(batch))]
