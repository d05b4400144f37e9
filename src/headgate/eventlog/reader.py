"""Reads a log from its files, in any process, while it is written.

A reader looks at the head first and at the files afterwards: records up to the head are complete, and never change but
for being taken down. Whatever lies behind it may be half written, or be cut off again, and is not looked at.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

from headgate.eventlog.files import LogFiles, mapped
from headgate.eventlog.head import Head
from headgate.eventlog.records import (
    CHECK_BYTES,
    CHECKED,
    HEADER,
    LOST,
    TAKEN_DOWN,
    Damage,
    Record,
    all_headers,
    find_record,
    headers,
    is_intact,
    is_sound,
)

__all__ = ["LogCursor", "LogReader"]

_log = logging.getLogger(__name__)

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
        self.damage: list[Damage] = []  # what it had to pass over
        self._start = -1
        self._descriptor = -1
        self._offset = 0
        self._has_checks = False  # of the record before, in the same file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def take_damage(self) -> list[Damage]:
        """What was passed over since the last call."""
        damage, self.damage = self.damage, []
        return damage

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
            is_one = is_sound(flags, kind, size, seq, after) and (flags & CHECKED != 0 or not self._has_checks)
            if is_one and seq > last:
                break
            begin, behind = offset + header_size, offset + header_size + size
            if is_one and behind > end:
                break
            if not is_one or (flags & CHECKED and not flags & TAKEN_DOWN and not is_intact(data, offset, behind)):
                self._offset, self.after = self._offset + offset, after
                self._pass_over(last)
                return records, True
            offset, after = behind, seq
            self._has_checks = flags & CHECKED != 0
            if flags & TAKEN_DOWN:
                continue
            payload = data[begin : behind - CHECK_BYTES] if flags & CHECKED else data[begin:behind]
            if kind == LOST:
                self._note(self._offset + begin, self._offset + behind, int.from_bytes(payload, "little"), seq + 1)
            else:
                records.append(Record(seq, kind, uid, payload))
        self._offset += offset
        self.after = after
        return records, offset > 0

    def _pass_over(self, last: int) -> None:
        """Go on behind what is no record, at the next one that is; at the end of the file if there is none.

        A record that is taken down at this moment may look damaged, and be none a moment later.
        """
        path = self._files.segment(self._start)
        with mapped(path) as data:
            flags, kind, size, _, seq = HEADER.unpack_from(data, self._offset)
            if flags & TAKEN_DOWN and is_sound(flags, kind, size, seq, self.after):
                return
            offset = find_record(data, self._offset + 1, self.after)
            end = len(data) if offset is None else offset
            before = HEADER.unpack_from(data, end)[4] if offset is not None else self._following(last + 1)
        self._note(self._offset, end, self.after, before)
        self._offset = end

    def _following(self, otherwise: int) -> int:
        """The first number of the next file."""
        return next((start for start in self._files.starts() if start > self._start), otherwise)

    def _note(self, offset: int, end: int, after: int, before: int) -> None:
        damage = Damage(str(self._files.segment(self._start)), offset, end, after, before)
        _log.error("an event log is damaged: %s", damage.text, extra=damage._asdict())
        self.damage.append(damage)

    def _size_of_next(self, data: bytes, tried: int, last: int) -> int:
        """How much to read for one record that is larger than what was read."""
        _, _, size, _, seq = HEADER.unpack_from(data)
        if seq > last:
            self._look_beyond(last)
        elif len(data) < tried:  # it says that it goes on behind the end of the file
            self._pass_over(last)
            return tried
        return HEADER.size + int(size)

    def _look_beyond(self, last: int) -> None:
        """A number beyond the last one is that of a record that is not wanted yet, if it is one at all. Otherwise it is
        damaged: the last one has a record of its own, which must come first.
        """
        with mapped(self._files.segment(self._start)) as data:
            is_record = find_record(data, self._offset, self.after) == self._offset
        if is_record:
            self.after = last
        else:
            self._pass_over(last)

    def _go_on(self, data: bytes, last: int) -> bool:
        """At the end of a file: to the next one. False if there is none."""
        following = [start for start in self._files.starts() if start > self._start]
        if not following:
            self.after = last  # every record up to there was written before the head said so
            return False
        if os.fstat(self._descriptor).st_size > self._offset + len(data):
            return True  # it had grown before the next file was begun
        if data:
            self._note(self._offset, self._offset + len(data), self.after, following[0])
        for segment in self._files.missing([self._start, *following]):
            if self._start < segment.start < following[0]:
                self._note(0, segment.size, segment.start - 1, following[0])
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
        self._has_checks = False
        return True


def _end_of(data: mmap | bytes, start: int, after: int) -> int:
    """Where the records up to `after` end. Checksums are looked at only if the way there is broken."""
    for walk in (headers, all_headers):
        end = 0
        for header in walk(data, start - 1):
            if header.seq > after:
                return end
            end = header.end
        if end == len(data):
            return end
    return end
