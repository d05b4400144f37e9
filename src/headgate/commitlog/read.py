"""Batches out of the log, on a connection of the caller's, without an event loop."""

from __future__ import annotations

import msgspec
import psycopg

from headgate.wire.kafka.batch import placed

__all__ = ["FETCH_SQL", "Read", "Stored", "read"]

# Partitions, offsets and limits of bytes, as arrays, and the limit for all of them.
FETCH_SQL = """
select ord, next_offset, log_start_offset, base_offset, last_offset, data from kafka.fetch(%b, %b, %b, %b)
"""


class Stored(msgspec.Struct, frozen=True):
    """A batch as it is in the log."""

    base_offset: int
    last_offset: int
    data: bytes  # as its producer sent it

    def placed(self) -> bytes:
        """The batch with its place in the log, as Fetch serves it."""
        return placed(self.data, self.base_offset, 0)


class Read(msgspec.Struct, frozen=True):
    """What a partition had from an offset on."""

    next_offset: int
    log_start_offset: int
    batches: list[Stored]


def read(connection: psycopg.Connection, part_id: int, offset: int, max_bytes: int) -> Read | None:
    """The batches of a partition from the one that contains `offset` on, at least one; None if it is gone."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(FETCH_SQL, [[part_id], [offset], [max_bytes], max_bytes])
        (_, next_offset, log_start_offset, *_), *rows = cursor.fetchall()
    if next_offset is None:
        return None
    return Read(next_offset, log_start_offset, [Stored(base, last, data) for *_, base, last, data in rows])
