"""Batches out of the log, on a connection of the caller's, without an event loop."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import psycopg

from headgate.wire.kafka.batch import placed, read_batch_header

__all__ = ["FETCH_SQL", "Isolation", "Read", "Stored", "read"]

# Partitions, offsets, limits of bytes, the limit for all of them, and whether each reader wants only what is committed.
FETCH_SQL = """
select ord, next_offset, log_start_offset, last_stable_offset, base_offset, last_offset, data, aborted_producers,
  aborted_offsets
from kafka.fetch_from(%b, %b, %b, %b, %b)
"""


class Stored(msgspec.Struct, frozen=True):
    """A batch as it is in the log."""

    base_offset: int
    last_offset: int
    data: bytes  # as its producer sent it

    def placed(self) -> bytes:
        """The batch with its place in the log, as Fetch serves it."""
        return placed(self.data, self.base_offset, 0)


class Isolation:
    """What readers of committed messages see, batch by batch in the order of the log.

    It is told of the aborted transactions among them, by producer and first offset, as `FETCH_SQL` answers.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._hidden: set[int] = set()

    def shows(self, batch: Stored) -> bool:
        """Whether a batch is one of messages that were not aborted."""
        header = read_batch_header(batch.data)
        while self._coming and self._coming[-1][1] <= batch.last_offset:
            self._hidden.add(self._coming.pop()[0])
        if header.is_control:
            self._hidden.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._hidden)


class Read(msgspec.Struct, frozen=True):
    """What a partition had from an offset on."""

    next_offset: int
    log_start_offset: int
    batches: list[Stored]


def read(connection: psycopg.Connection, part_id: int, offset: int, max_bytes: int) -> Read | None:
    """The batches of a partition from the one that contains `offset` on, at least one; None if it is gone.

    All of them, whatever became of their transactions.
    """
    with connection.cursor(binary=True) as cursor:
        cursor.execute(FETCH_SQL, [[part_id], [offset], [max_bytes], max_bytes, [False]])
        (_, next_offset, log_start_offset, *_), *rows = cursor.fetchall()
    if next_offset is None:
        return None
    return Read(next_offset, log_start_offset, [Stored(base, last, data) for *_, base, last, data, _, _ in rows])
