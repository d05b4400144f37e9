"""Topics of the log in PostgreSQL: which partitions there are, how far they reach, and their messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pyarrow as pa

from headgate.commitlog.read import Isolation, Stored
from headgate.commitlog.topics import LogTopic, find_topics
from headgate.model import AuthError, ConnectError, HeadgateError, StateError, UsageError
from headgate.postgres import open_connection, server_address
from headgate.sources.kafka.offsets import Bounds, Partition, Range
from headgate.sources.kafka.options import BATCHES
from headgate.sources.kafka.rows import header_column, to_batch
from headgate.sources.kafka.whole import Whole, to_rows
from headgate.sources.log.options import LogSourceOptions
from headgate.wire.kafka import Record, read_records
from headgate.wire.kafka.batch import read_batch_header

__all__ = ["LogTables"]

_FETCH_BYTES = 4 << 20
_BOUNDS = "select part_id, log_start_offset, last_stable_offset from kafka.partitions where part_id = any(%s)"
_FETCH = """
select log_start_offset, base_offset, last_offset, data, aborted_producers, aborted_offsets
from kafka.fetch_from(array[%b::int], array[%b::bigint], array[%b::int], %b::bigint, array[true])
"""
_NONE_THERE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedColumn,  # of a schema that no headgate of this version has seen
)


class LogTables:
    """The topics that the options name, as far as transactions are over. Connects for every question; picklable."""

    def __init__(self, options: LogSourceOptions) -> None:
        self._options = options

    def bounds(self) -> dict[Partition, Bounds]:
        """Every partition with its first and next offset."""
        with self._connected() as connection:
            parts = {
                part: Partition(topic.name, number)
                for topic in self._topics(connection)
                for number, part in enumerate(topic.parts)
            }
            found = connection.execute(_BOUNDS, [list(parts)]).fetchall()
            return {parts[part]: Bounds(first, end) for part, first, end in found}

    def _topics(self, connection: psycopg.Connection) -> list[LogTopic]:
        if self._options.subscribe_pattern:
            return find_topics(connection, pattern=self._options.subscribe_pattern)
        names = [name.strip() for name in self._options.subscribe.split(",") if name.strip()]
        found = find_topics(connection, names)
        missing = sorted(set(names) - {topic.name for topic in found})
        if missing:
            raise StateError(f"there is no topic {missing[0]}", remedy="create it, or correct the name")
        return found

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """The rows of a range: messages, or batches; offsets without a message are passed over."""
        yield from self._read_batches(wanted) if self._options.unit == BATCHES else self._read_messages(wanted)

    def _read_batches(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """Batches whose last message is in the range, so that each is in one; then how far that goes."""
        partition, done, end = wanted
        for batches, _, reached in self._stored(wanted):
            whole = [Whole(b.base_offset, b.last_offset, b.placed()) for b in batches if b.last_offset < end]
            done = min([reached, end, *(b.base_offset for b in batches if b.last_offset >= end)])
            if whole:
                yield to_rows(partition, whole)
        # Also of a range without anything: that there is such a partition.
        yield to_rows(partition, [Whole(max(done, wanted.start), max(done, wanted.start), b"")])

    def _stored(self, wanted: Range) -> Iterator[tuple[list[Stored], int, int]]:
        """What readers of committed messages see of a range, a few megabytes at a time, from an offset to another."""
        partition, offset, end = wanted
        with self._connected() as connection, connection.cursor(binary=True) as cursor:
            part = self._part(connection, partition)
            while offset < end:
                cursor.execute(_FETCH, [part, offset, _FETCH_BYTES, _FETCH_BYTES])
                (first, *_), *rows = cursor.fetchall()
                batches = [Stored(*row[1:4]) for row in rows if row[3] is not None]
                aborted = [pair for row in rows if row[3] is None for pair in zip(row[4], row[5], strict=True)]
                isolation = Isolation(aborted)
                if first is not None and offset < first:
                    self._lost(partition, offset, first)
                    offset = first
                elif not batches:
                    yield [], end, end  # what was planned has been deleted since, to the last message
                    return
                else:
                    start, offset = offset, batches[-1].last_offset + 1
                    yield [*filter(isolation.shows, batches)], start, offset

    def _read_messages(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        for batches, start, _ in self._stored(wanted):
            yield from _rows(wanted.partition, batches, start, wanted.end)

    def _part(self, connection: psycopg.Connection, partition: Partition) -> int:
        found = find_topics(connection, [partition.topic])
        if not found or partition.number >= len(found[0].parts):
            raise StateError(f"there is no {partition} any more", remedy="the topic was deleted; reset the pipeline")
        return found[0].parts[partition.number]

    def _lost(self, partition: Partition, offset: int, first: int) -> None:
        if self._options.fail_on_data_loss:
            raise StateError(
                f"messages {offset} to {first - 1} of {partition} are gone before they were read",
                remedy="keep messages for longer; to go on with what is there, set failOnDataLoss to false",
            )

    def close(self) -> None:
        """Nothing is kept open."""

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with open_connection(self._options.url, "headgate log") as connection:
                yield connection
        except psycopg.Error as error:
            raise _ours(error, self._options.url) from None


def _ours(error: psycopg.Error, url: str) -> HeadgateError:
    message = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return AuthError(message, where="schema kafka", remedy="GRANT USAGE ON SCHEMA kafka, and SELECT on its tables")
    if isinstance(error, _NONE_THERE):
        return StateError(message, where="schema kafka", remedy="start a gateway, or a pipeline that writes to the log")
    if isinstance(error, psycopg.errors.InvalidRegularExpression):
        return UsageError(message, where="subscribePattern", remedy="give a regular expression of PostgreSQL's")
    return ConnectError(message, where=server_address(url), remedy="check that PostgreSQL runs and takes connections")


def _rows(partition: Partition, batches: Sequence[Stored], start: int, end: int) -> Iterator[pa.RecordBatch]:
    for stored in batches:
        batch = stored.placed()
        header = read_batch_header(batch)
        records = [record for record in read_records(batch) if start <= record.offset < end]
        if records:
            yield _to_batch(partition, records, int(header.is_log_append_time))


def _to_batch(partition: Partition, records: list[Record], timestamp_type: int) -> pa.RecordBatch:
    return to_batch(
        partition,
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.timestamp for record in records], pa.int64()),
        pa.repeat(pa.scalar(timestamp_type, pa.int32()), len(records)),
        header_column([record.headers for record in records]),
    )
