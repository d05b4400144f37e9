"""Whether the other cluster has the same messages: ends, and the newest messages byte by byte.

It reads both sides anew, and takes no figure of the mirror's but the map.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

from headgate.commitlog.read import FETCH_SQL, Isolation, Stored
from headgate.model import ConnectError, StateError
from headgate.shadow.cutover.plan import Part
from headgate.shadow.cutover.target import Target
from headgate.wire.kafka import Record, read_records
from headgate.wire.kafka.batch import read_batch_header

__all__ = ["committed_records", "verify"]

_FETCH_BYTES = 4 << 20
_PATIENCE_S = 60.0
_OFFSET_SQL = "select kafka.shadow_offset(%s, %s, %s, %s)"


def verify(connection: psycopg.Connection, target: Target, link: str, parts: Sequence[Part], newest: int) -> int:
    """Compare partitions that are mirrored to their ends; return how many messages were compared.

    Raises `StateError` if they differ.
    """
    ends = target.ends([(part.topic, part.partition) for part in parts])
    for part in parts:
        found = ends[part.topic, part.partition]
        if found != part.ext_next:
            raise StateError(
                f"{part.topic}/{part.partition} ends at {found} in the other cluster, and not at {part.ext_next}",
                remedy="somebody else writes to the topic there; stop that",
            )
    reader = target.reader()
    try:
        return sum(_compare(connection, reader, link, part, newest) for part in parts)
    finally:
        reader.close()


def _compare(connection: psycopg.Connection, reader: Any, link: str, part: Part, newest: int) -> int:
    first = max(part.log_start_offset, part.mirrored_to - newest)
    here = list(committed_records(connection, part, first))
    if not here:
        return 0
    row = connection.execute(_OFFSET_SQL, [link, part.topic, part.partition, here[0].offset]).fetchone()
    assert row is not None
    there = _read(reader, part, row[0], len(here))
    for mine, other in zip(here, there, strict=True):
        if _digest(mine.key, mine.value, mine.headers, mine.timestamp) != other:
            raise StateError(
                f"message {mine.offset} of {part.topic}/{part.partition} is another one in the other cluster",
                remedy="delete the topic there, forget it (select kafka.shadow_forget), and mirror it anew",
            )
    return len(here)


def committed_records(connection: psycopg.Connection, part: Part, offset: int) -> Iterator[Record]:
    """Yield the committed messages of a partition, from an offset to where it is mirrored to."""
    with connection.cursor(binary=True) as cursor:
        while offset < part.mirrored_to:
            cursor.execute(FETCH_SQL, [[part.part_id], [offset], [_FETCH_BYTES], _FETCH_BYTES, [True]])
            _, *rows = cursor.fetchall()
            batches = [Stored(*row[4:7]) for row in rows if row[6] is not None]
            aborted = [pair for row in rows if row[6] is None for pair in zip(row[7], row[8], strict=True)]
            isolation = Isolation(aborted)
            if not batches:
                return
            for stored in batches:
                if not isolation.shows(stored):
                    continue
                header = read_batch_header(stored.data)
                for record in read_records(stored.placed()):
                    if offset <= record.offset < part.mirrored_to:
                        time_ms = header.max_timestamp if header.is_log_append_time else record.timestamp
                        yield Record(record.offset, time_ms, record.key, record.value, record.headers)
            offset = batches[-1].last_offset + 1


def _read(reader: Any, part: Part, offset: int, count: int) -> list[bytes]:
    reader.assign([TopicPartition(part.topic, part.partition, offset)])
    found: list[bytes] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(found) < count:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            kind, time_ms = message.timestamp()
            headers = [(name, value) for name, value in message.headers() or ()]
            found.append(
                _digest(message.key(), message.value(), headers, -1 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms)
            )
            deadline = time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            raise ConnectError(
                f"{part.topic}/{part.partition} could be read to {len(found)} of {count} messages",
                remedy="check that the user may read the topic in the other cluster",
            )
    return found


def _digest(key: bytes | None, value: bytes | None, headers: Sequence[tuple[Any, bytes | None]], time_ms: int) -> bytes:
    """Of one message; every part with its length, or none."""
    digest = hashlib.blake2b(digest_size=16)
    names = [name.encode() if isinstance(name, str) else bytes(name) for name, _ in headers]
    for each in (key, value, *(part for name, (_, text) in zip(names, headers, strict=True) for part in (name, text))):
        digest.update(b"-" if each is None else b"%d:" % len(each))
        digest.update(each or b"")
    digest.update(b"@%d" % time_ms)
    return digest.digest()
