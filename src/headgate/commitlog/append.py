"""Batches into the log, on a connection of the caller's, without an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import psycopg
from psycopg.adapt import PyFormat

from headgate.commitlog.parameters import TYPES_SQL, Incoming, register
from headgate.commitlog.prepare import Batch
from headgate.wire.kafka.error_codes import ErrorCode

__all__ = [
    "APPEND_IN_TRANSACTION_SQL",
    "APPEND_SQL",
    "SESSION_SQL",
    "Appended",
    "Membership",
    "Outcome",
    "append",
    "append_arguments",
    "outcomes",
    "wake_readers",
]

APPEND_SQL = "select error, base_offset, log_start_offset, last_stable_offset from kafka.append(%b, %b, %b)"
# Batches, the transactional id of each or null, whether each may add its partition, and durability.
APPEND_IN_TRANSACTION_SQL = """
select error, base_offset, log_start_offset, last_stable_offset from kafka.append_transactional(%b, %b, %b, %b)
"""
_NOTIFY = "select pg_notify('kafka_log', %s)"
_MAX_NOTIFIED = 200  # a notification has 8000 bytes
# The batches of one call pass through memory, not through files.
SESSION_SQL = "set work_mem = '64MB'"


class Appended(msgspec.Struct, frozen=True):
    """Where the batches of one request went."""

    base_offset: int
    log_append_time: int  # -1 if the producer dated them
    log_start_offset: int


class Membership(msgspec.Struct, frozen=True):
    """The transaction that batches say they belong to."""

    transactional_id: str
    may_join: bool  # whether they may add their partition to it


class Outcome(msgspec.Struct, frozen=True):
    """What became of one batch. The last stable offset is the partition's, after all of its call."""

    error: ErrorCode
    base_offset: int
    log_start_offset: int
    last_stable_offset: int


def append(
    connection: psycopg.Connection, batches: Sequence[tuple[int, Batch]], *, is_durable: bool = True
) -> list[Outcome]:
    """Append batches, each to the partition named beside it, in the caller's transaction or in one of its own.

    Commit at once: until then nobody else can append. A batch that is refused, for its sequence number or because its
    partition is gone, leaves the others alone.
    """
    _ready(connection)
    with connection.cursor(binary=True) as cursor:
        cursor.execute(APPEND_SQL, append_arguments(batches, is_durable=is_durable))
        return outcomes(cursor.fetchall())


def append_arguments(batches: Sequence[tuple[int, Batch]], *, is_durable: bool) -> tuple[Incoming, bool, bool]:
    """What `APPEND_SQL` is called with."""
    return Incoming(batches), any(batch.producer_id >= 0 for _, batch in batches), is_durable


def outcomes(rows: Sequence[tuple[int, int, int, int]]) -> list[Outcome]:
    return [Outcome(ErrorCode(error), base, start, stable) for error, base, start, stable in rows]


def wake_readers(connection: psycopg.Connection, ends: Mapping[int, tuple[int, int]]) -> None:
    """Tell gateways how far partitions reach: by `part_id` the offset behind the last message, and the first.

    They would find out by themselves, but only after a second.
    """
    told = [f"{part}:{end}:{start}" for part, (end, start) in ends.items()]
    for first in range(0, len(told), _MAX_NOTIFIED):
        connection.execute(_NOTIFY, [",".join(told[first : first + _MAX_NOTIFIED])])


def _ready(connection: psycopg.Connection) -> None:
    """The types of the schema have other numbers in every database."""
    try:
        connection.adapters.get_dumper(Incoming, PyFormat.BINARY)
    except psycopg.ProgrammingError:
        row = connection.execute(TYPES_SQL).fetchone()
        assert row is not None
        register(connection, *row)
