"""Reads a log from its files, in any process, while it is written.

A reader looks at the head first and at the files afterwards: records up to the head are complete, and never change but
for being taken down. Whatever lies behind it may be half written, or be cut off again, and is not looked at.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

from headgate.eventlog.files import LogFiles, damaged, mapped
from headgate.eventlog.head import Head
from headgate.eventlog.records import HEADER, TAKEN_DOWN, Record, headers, is_sound

__all__ = ["LogCursor", "LogReader"]

_READ_BYTES = 1 << 20


class LogReader:
    """A log to read from. The directory may come into being later."""

    def __init__(self, path: Path) -> None:
        self.files = LogFiles(path)
        self.head = Head(self.files.head_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def head_seq(self) -> int:
        """The number of the last durable record."""
        return self.head.seq

    @property
    def oldest_seq(self) -> int:
        """No record that is still there has a lower number."""
        starts = self.files.starts()
        return max(1, starts[0]) if starts else self.head_seq + 1

    def seq_at(self, time: float) -> int:
        """A number at or before the first record that is as young as `time`, to within a segment."""
        starts = self.files.starts()
        if not starts:
            return self.head_seq + 1
        try:
            segments = self.files.segments(starts[:-1])
        except FileNotFoundError:  # removed in the meantime, for its age
            return self.oldest_seq
        young = (segment.start for segment in segments if segment.last_time >= time)
        return max(1, next(young, starts[-1]))

    def cursor(self, after: int) -> LogCursor:
        """A place to read on from: behind the record `after`. Close it."""
        return LogCursor(self.files, self.head, after)

    def read(self, after: int, max_bytes: int = _READ_BYTES) -> Iterator[list[Record]]:
        """All records behind `after` that are durable now, in batches."""
        with self.cursor(after) as cursor:
            last = self.head_seq
            while records := cursor.read(max_bytes, last):
                yield records

    def close(self) -> None:
        self.head.close()


class LogCursor:
    """A place in a log that moves on as it is read."""

    def __init__(self, files: LogFiles, head: Head, after: int) -> None:
        self._files = files
        self._head = head
        self.after = after
        self.has_skipped = False  # what it should have read was removed before it came there
        self._start = -1
        self._descriptor = -1
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, max_bytes: int = _READ_BYTES, until: int | None = None) -> list[Record]:
        """Some of the next records, up to the head or `until`; none if there are no more for now."""
        last = self._head.seq if until is None else min(until, self._head.seq)
        usual = wanted = max(max_bytes, HEADER.size)
        while self.after < last:
            if self._descriptor < 0 and not self._open():
                self.after = last
                return []
            data = os.pread(self._descriptor, wanted, self._offset)
            records, has_moved = self._parse(data, last)
            if records:
                return records
            if has_moved:
                wanted = usual
            elif len(data) < HEADER.size:
                if not self._go_on(data, last):
                    return []
            else:
                wanted = self._size_of_next(data, wanted, last)
        return []

    def _parse(self, data: bytes, last: int) -> tuple[list[Record], bool]:
        records: list[Record] = []
        unpack, header_size = HEADER.unpack_from, HEADER.size
        offset, end, after = 0, len(data), self.after
        while offset + header_size <= end:
            flags, kind, size, uid, seq = unpack(data, offset)
            if seq > last:
                break
            if not is_sound(flags, kind, size, seq, after):
                raise damaged(self._files.segment(self._start), self._offset + offset)
            begin = offset + header_size
            if begin + size > end:
                break
            offset, after = begin + size, seq
            if not flags & TAKEN_DOWN:
                records.append(Record(seq, kind, uid, data[begin:offset]))
        self._offset += offset
        self.after = after
        return records, offset > 0

    def _size_of_next(self, data: bytes, tried: int, last: int) -> int:
        """How much to read for one record that is larger than what was read."""
        _, _, size, _, seq = HEADER.unpack_from(data)
        if seq > last:
            self.after = last
        elif len(data) < tried:
            raise damaged(self._files.segment(self._start), self._offset)
        return HEADER.size + int(size)

    def _go_on(self, data: bytes, last: int) -> bool:
        """At the end of a file: to the next one. False if there is none."""
        following = [start for start in self._files.starts() if start > self._start]
        if not following:
            self.after = last  # every record up to there was written before the head said so
            return False
        if os.fstat(self._descriptor).st_size > self._offset + len(data):
            return True  # it had grown before the next file was begun
        if data:
            raise damaged(self._files.segment(self._start), self._offset)
        self.close()
        self.has_skipped |= not self._enter(following[0])
        return True

    def _open(self) -> bool:
        """Find the next record: its file, and the place there. False if there are no files."""
        while starts := self._files.starts():
            if starts[0] > self.after + 1:
                self.has_skipped = True
            number = max(0, bisect_right(starts, self.after + 1) - 1)
            if self._enter(starts[number]):
                return True
        self.has_skipped = True
        return False

    def _enter(self, start: int) -> bool:
        """Open a file behind the records that were read; False if it was removed in the meantime."""
        path = self._files.segment(start)
        try:
            with mapped(path) as data:
                self._offset = _end_of(data, start, self.after) if start <= self.after else 0
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._start = start
        return True


def _end_of(data: mmap | bytes, start: int, after: int) -> int:
    """Where the records up to `after` end."""
    end = 0
    for header in headers(data, start - 1):
        if header.seq > after:
            break
        end = header.end
    return end
