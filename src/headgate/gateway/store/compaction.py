"""Compaction: of every key the last record stays, at its offset.

For a topic with `cleanup.policy=compact`. A round reads the records that are new since the last one, notes the offset
of the last record of each key, and then goes over everything before, batch by batch. How many keys it notes is
limited; if there are more, it takes several rounds. What came in after the last round is left alone, so that those who
read along see every record.

A record without a value says that its key is gone. It stays for delete.retention.ms, and then goes, too.

What belongs to an open transaction, and all behind it, is left for later. What was aborted counts for nothing and goes.
The marker of a transaction stays for delete.retention.ms, and as long as there are records of it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgspec
import numpy as np
import psycopg

from headgate.commitlog.configs import long_of, value_of
from headgate.commitlog.parameters import TYPES_SQL, Incoming, register
from headgate.commitlog.prepare import Batch
from headgate.commitlog.read import FETCH_SQL, Isolation, Stored
from headgate.gateway.store.statements import sql
from headgate.kernels.log.positions import walk
from headgate.wire.kafka.batch import CRC_START, HEADER_BYTES, BatchHeader, crc32c, read_batch_header
from headgate.wire.kafka.compression import Codec, decompress
from headgate.wire.kafka.records import MAX_RECORDS_BYTES, Record, encode_batch, read_records

__all__ = ["compact", "survivors"]

_CHUNK_BYTES = 4 << 20
_LAST_DELTA, _LAST_DELTA_AT = Struct(">i"), 23
_CRC, _CRC_AT = Struct(">I"), 17


@dataclass(frozen=True, slots=True)
class _Partition:
    part_id: int
    configs: Mapping[str, str]
    start: int
    clean_to: int
    stop: int
    next_offset: int


@dataclass(slots=True)
class _Notes:
    """The offset of the last record of each key, up to `stop`."""

    limit: int
    stop: int
    last: dict[bytes, int] = field(default_factory=dict)

    def take(self, batch: Stored) -> bool:
        """Note a batch, unless that would be too many keys. One batch is always taken."""
        keys = {_digest(record.key): record.offset for record in _records(batch) if record.key is not None}
        if self.last and len(self.last) + len(keys) > self.limit:
            return False
        self.last.update(keys)
        self.stop = batch.last_offset + 1
        return True


def _records(batch: Stored) -> list[Record]:
    return list(read_records(batch.placed()))


def _digest(key: bytes) -> bytes:
    return key if len(key) <= 16 else blake2b(key, digest_size=17).digest()


async def compact(connection: psycopg.AsyncConnection, max_keys: int) -> None:
    """One round over all compacted topics."""
    cursor = await connection.execute(sql("compactable"))
    for row in await cursor.fetchall():
        partition = _Partition(*row)
        if await _is_worth_it(connection, partition):
            await _compact(connection, partition, max_keys)
        if partition.stop < partition.next_offset:
            await connection.execute(sql("compact_next"), [partition.part_id])


async def _is_worth_it(connection: psycopg.AsyncConnection, partition: _Partition) -> bool:
    """Going over everything costs the same whether much is new or little."""
    if partition.stop <= max(partition.clean_to, partition.start):
        return False
    dirty = await _bytes(connection, partition.part_id, partition.clean_to, partition.stop)
    clean = await _bytes(connection, partition.part_id, partition.start, partition.clean_to)
    ratio = float(value_of(partition.configs, "min.cleanable.dirty.ratio"))
    return dirty > 0 and dirty >= ratio * (dirty + clean)


async def _bytes(connection: psycopg.AsyncConnection, part_id: int, first: int, stop: int) -> int:
    values = {"part": part_id, "first": first, "stop": stop}
    row = await (await connection.execute(sql("dirty_bytes"), values)).fetchone()
    return 0 if row is None else int(row[0])


async def _compact(connection: psycopg.AsyncConnection, partition: _Partition, max_keys: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    oldest_ms = now_ms - long_of(partition.configs, "min.compaction.lag.ms")
    notes = _Notes(max_keys, partition.clean_to)
    first = max(partition.start, partition.clean_to)
    isolation = await _isolation(connection, partition.part_id, first, partition.stop)
    async for batch in _batches(connection, partition.part_id, first, partition.stop):
        if read_batch_header(batch.data).max_timestamp > oldest_ms:
            break
        if not isolation.shows(batch):
            notes.stop = batch.last_offset + 1
        elif not notes.take(batch):
            break
    grave_ms = now_ms - long_of(partition.configs, "delete.retention.ms")
    for_sql = value_of(partition.configs, "headgate.sql") == "true"
    await _register(connection)
    isolation = await _isolation(connection, partition.part_id, partition.start, notes.stop)
    markers = _Markers(grave_ms)
    async for batch in _batches(connection, partition.part_id, partition.start, notes.stop):
        header = read_batch_header(batch.data)
        is_shown = isolation.shows(batch)
        if header.is_control:
            if not markers.keep(header):
                await _replace(connection, partition.part_id, batch, [], for_sql)
            continue
        records = _records(batch)
        kept = survivors(records, notes.last, partition.clean_to, grave_ms) if is_shown else []
        if kept and header.is_transactional:
            markers.needed.add(header.producer_id)
        if len(kept) < len(records):
            await _replace(connection, partition.part_id, batch, kept, for_sql)
    await connection.execute(sql("compacted"), [notes.stop, partition.part_id])
    await connection.execute(sql("drop_empty_spans"), [partition.part_id])


@dataclass(slots=True)
class _Markers:
    """Which markers must stay: `needed` are the producers of records that await theirs."""

    grave_ms: int
    needed: set[int] = field(default_factory=set)

    def keep(self, header: BatchHeader) -> bool:
        has_records = header.producer_id in self.needed
        self.needed.discard(header.producer_id)
        return has_records or header.max_timestamp >= self.grave_ms


async def _isolation(connection: psycopg.AsyncConnection, part_id: int, first: int, stop: int) -> Isolation:
    cursor = await connection.execute(sql("aborted_among"), [part_id, first, stop])
    return Isolation([(producer, offset) for producer, offset in await cursor.fetchall()])


def survivors(records: list[Record], last: Mapping[bytes, int], clean_to: int, grave_ms: int) -> list[Record]:
    """Return the records that no later one replaces. A record without a key means nothing to a compacted topic."""
    return [
        record
        for record in records
        if record.key is not None
        and last.get(_digest(record.key), -1) <= record.offset
        # Older values of its key went in the round that made this part of the log clean.
        and not (record.value is None and record.offset < clean_to and record.timestamp < grave_ms)
    ]


async def _batches(connection: psycopg.AsyncConnection, part_id: int, first: int, stop: int) -> AsyncIterator[Stored]:
    """All batches from an offset on that end before another."""
    while first < stop:
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(FETCH_SQL, [[part_id], [first], [_CHUNK_BYTES], _CHUNK_BYTES, [False]])
            found = [Stored(*row[4:7]) for row in await cursor.fetchall() if row[6]]
        if not found:
            return
        for batch in found:
            if batch.last_offset >= stop:
                return
            yield batch
        first = found[-1].last_offset + 1


async def _replace(
    connection: psycopg.AsyncConnection, part_id: int, batch: Stored, kept: list[Record], for_sql: bool
) -> None:
    values: list[Any] = [part_id, batch.last_offset, None, None, None]
    if kept:
        sparse, deltas = _rewritten(batch, kept, for_sql)
        values[2:] = Incoming([(part_id, sparse)]), kept[0].offset, deltas
    async with connection.transaction(), connection.cursor(binary=True) as cursor:
        await cursor.execute(sql("replace_batch" if kept else "remove_batch"), values if kept else values[:2])
        row = await cursor.fetchone()
        assert row is not None
        if not kept:
            await connection.execute(sql("forget_abort"), values[:2])
        await connection.execute(sql("lock_head"))
        await connection.execute(sql("shrink"), [row[0], part_id])


def _rewritten(batch: Stored, kept: list[Record], for_sql: bool) -> tuple[Batch, list[int] | None]:
    """The batch with fewer records, over the offsets up to the one where it ended before."""
    header = read_batch_header(batch.data)
    data = bytearray(
        encode_batch(
            kept,
            codec=header.codec,
            leader_epoch=0,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            log_append_time=header.max_timestamp if header.is_log_append_time else None,
        )
    )
    _LAST_DELTA.pack_into(data, _LAST_DELTA_AT, batch.last_offset - kept[0].offset)
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CRC_START:]))
    new = read_batch_header(memoryview(data))
    section = bytes(data[HEADER_BYTES:])
    plain = None if new.codec is Codec.NONE else decompress(new.codec, section, max_bytes=MAX_RECORDS_BYTES)
    positions = walk(section if plain is None else plain, len(kept))
    assert positions is not None
    deltas = np.frombuffer(positions.off_delta, ">i4")[1::2].tolist() if positions.off_delta else None
    return (
        Batch(
            data=memoryview(data),
            count=len(kept),
            attributes=new.attributes,
            base_timestamp=new.base_timestamp,
            max_timestamp=new.max_timestamp,
            producer_id=new.producer_id,
            producer_epoch=new.producer_epoch,
            base_sequence=new.base_sequence,
            positions=msgspec.structs.replace(positions, off_delta=b"") if for_sql else None,
            plain=plain if for_sql else None,
        ),
        deltas,
    )


async def _register(connection: psycopg.AsyncConnection) -> None:
    row = await (await connection.execute(TYPES_SQL)).fetchone()
    assert row is not None
    register(connection, *row)
