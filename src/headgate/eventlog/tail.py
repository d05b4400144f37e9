"""Follows a log: each record once, as soon as it is durable, with the recent ones kept in memory."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from headgate.eventlog.reader import LogReader
from headgate.eventlog.records import HEADER, Damage, Record
from headgate.eventlog.threads import in_thread

__all__ = ["Tail", "follow"]

_READ_BYTES = 1 << 20
_POLL_S = 0.005


class Tail:
    """The end of a log, and a ring of the records before it. Belongs to one thread."""

    def __init__(self, reader: LogReader, ring_bytes: int = 32 << 20) -> None:
        self.reader = reader
        self._ring_bytes = ring_bytes
        self._cursor = reader.cursor(reader.head_seq)
        self._scrubs = reader.head.scrubs
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def position(self) -> int:
        """Everything up to here has been returned by `poll`."""
        return self._cursor.after

    @property
    def is_behind(self) -> bool:
        return self.reader.head_seq > self.position

    def poll(self, max_bytes: int = _READ_BYTES) -> list[Record]:
        """What is new; none, and cheap, if nothing is."""
        self._heed_scrubs()
        if not self.is_behind:
            return []
        records = self._cursor.read(max_bytes)
        self._keep(records)
        return records

    def take_damage(self) -> list[Damage]:
        """What was passed over since the last call."""
        return self._cursor.take_damage()

    def recent(self, after: int, max_bytes: int = _READ_BYTES) -> list[Record] | None:
        """Some records behind `after`, up to the position; None if they are no longer all in memory."""
        self._heed_scrubs()
        if after < self._floor:
            return None
        first = last = bisect_right(self._seqs, after, lo=self._first)
        while last < len(self._records) and max_bytes > 0:
            max_bytes -= len(self._records[last].payload) + HEADER.size
            last += 1
        return self._records[first:last]

    def close(self) -> None:
        self._cursor.close()

    def _heed_scrubs(self) -> None:
        """What was taken down must not be served from memory."""
        if self.reader.head.scrubs != self._scrubs:
            self._scrubs = self.reader.head.scrubs
            self._forget()

    def _forget(self) -> None:
        self._records: list[Record] = []
        self._seqs: list[int] = []
        self._first = 0  # those before it are as good as gone
        self._bytes = 0
        self._floor = self.position  # the ring has every record behind it

    def _keep(self, records: list[Record]) -> None:
        self._records += records
        self._seqs += [record.seq for record in records]
        self._bytes += sum(len(record.payload) + HEADER.size for record in records)
        while self._bytes > self._ring_bytes:
            record = self._records[self._first]
            self._floor = record.seq
            self._bytes -= len(record.payload) + HEADER.size
            self._first += 1
        if self._first * 2 > len(self._records):
            del self._records[: self._first], self._seqs[: self._first]
            self._first = 0


async def follow(reader: LogReader, after: int, *, poll_s: float = _POLL_S) -> AsyncIterator[list[Record]]:
    """All records behind `after`, in batches, for ever: those there are, then each as it becomes durable."""
    with reader.cursor(after) as cursor:
        while True:
            if reader.head_seq > cursor.after:
                if records := await in_thread(None, cursor.read):
                    yield records
            else:
                await asyncio.sleep(poll_s)
