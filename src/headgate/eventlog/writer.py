"""The one writer of a log: appends durably, begins new segments, and lets go of old ones.

A number is given once. Before the writer gives any, it reserves some ahead in a small file that is synced, so that
neither a crash, nor a lost tail, nor the removal of all records brings a number back; what a crash leaves of a
reservation is a gap, which readers must allow anyway.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from headgate.eventlog.files import LogFiles, Segment, damaged, mapped
from headgate.eventlog.head import Head
from headgate.eventlog.records import (
    CHECK_BYTES,
    HEADER,
    MAX_SEQ,
    Record,
    encode,
    ends_with_record,
    intact_extent,
    measure,
)
from headgate.eventlog.scrub import scrub_files
from headgate.model import CapacityError, HeadgateError, StateError
from headgate.runtime.file_lock import FileLock

__all__ = ["Entry", "LogOptions", "LogWriter", "Outcome"]

_log = logging.getLogger(__name__)

_RESERVED_AHEAD = 10_000
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Outcome = int | Exception  # the number of a record, or why there is none


@dataclass(frozen=True, slots=True)
class LogOptions:
    """When a segment ends and how long it is kept. 0 means no limit."""

    segment_events: int = 10_000
    segment_bytes: int = 256 << 20
    max_age_s: float = 72 * 3600.0
    max_bytes: int = 0
    first_seq: int = 1  # no number below it is given, so that a log can go on where another one ended


class Entry(NamedTuple):
    """What is to become a record. A payload that holds its own number is made by a function, once that is known."""

    kind: int
    uid: int
    payload: bytes | Callable[[int], bytes]


@dataclass(slots=True)
class _Active:
    """The segment that is written to."""

    start: int
    descriptor: int
    size: int
    count: int
    last_seq: int
    first_time: float
    last_time: float

    def as_segment(self) -> Segment:
        return Segment(self.start, self.last_seq, self.size, self.first_time, self.last_time)


class LogWriter:
    """Appends to a directory, which it locks. Its calls block; one thread at a time may use it, but for `scrub`."""

    def __init__(
        self, path: Path, options: LogOptions | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.options = options or LogOptions()
        self._files = LogFiles(path)
        self._clock = clock
        self._active: _Active | None = None
        self._segments: list[Segment] = []
        self._missing: list[Segment] = []  # of which the index knows, and there is no file
        self._broken: StateError | None = None
        self._lock: FileLock | None = None
        try:
            self._lock = self._files.lock()
            self._head = Head(self._files.head_path, is_writer=True)
            self._reserved = max(self._files.reserved(), self.options.first_seq)
            last_seq = self._recover()
            self.next_seq = max(self._reserved, last_seq + 1)
            # Where nothing is left, whoever has read everything must not seem to come from the future.
            self._head.advance(last_seq or self.next_seq - 1)
        except OSError as error:
            self._release()
            raise self._failed(error) from error
        except BaseException:
            self._release()
            raise

    @property
    def path(self) -> Path:
        return self._files.path

    @property
    def oldest_seq(self) -> int:
        """No record that is still there has a lower number."""
        starts = [segment.start for segment in self._segments] + ([self._active.start] if self._active else [])
        return max(1, starts[0]) if starts else self.next_seq

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Records of all entries, durable and then visible. An entry without one has its error in its place."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(entries):
            try:
                outcomes += self._append_part(entries, len(outcomes))
            except HeadgateError as error:
                outcomes += [error] * (len(entries) - len(outcomes))
        return outcomes

    def append_all(self, entries: Sequence[Entry]) -> list[int]:
        """Append `entries` and return their numbers; raise the first error if one of them could not be written."""
        numbers: list[int] = []
        for outcome in self.append(entries):
            if isinstance(outcome, Exception):
                raise outcome
            numbers.append(outcome)
        return numbers

    def retain(self) -> int:
        """Remove the segments that are too old, or too many; how many they were."""
        oldest = self._clock() - self.options.max_age_s if self.options.max_age_s else 0.0
        active = self._active
        if active and active.count and active.last_time < oldest:
            self._end_segment(active)
        total = sum(segment.size for segment in self._segments) + (self._active.size if self._active else 0)
        removed = 0
        for segment in list(self._segments):
            if segment.last_time >= oldest and not 0 < self.options.max_bytes < total:
                break
            self._files.segment(segment.start).unlink(missing_ok=True)
            self._segments.remove(segment)
            total -= segment.size
            removed += 1
        if removed:
            self._save_index()
        return removed

    def scrub(self, unwanted: int | Callable[[Record], bool]) -> int:
        """Take down the records of a uid, or those of which a function says so; how many they were.

        May run in another thread than the rest. Records that are appended meanwhile are not looked at.
        """
        return scrub_files(self._files, self._head, unwanted)

    def close(self) -> None:
        """Give back what was reserved, and let another writer in."""
        try:
            if self._reserved != self.next_seq and self._broken is None:
                self._files.reserve(self.next_seq)
        except OSError:
            _log.warning("the numbers reserved ahead are lost", extra={"path": str(self.path)})
        finally:
            self._release()

    def _release(self) -> None:
        if self._active:
            os.close(self._active.descriptor)
            self._active = None
        if hasattr(self, "_head"):
            self._head.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Beginning

    def _recover(self) -> int:
        """Mend the tail, and find the last number there is; 0 if there are no records."""
        starts = self._files.starts()
        self._missing = self._files.missing(starts)
        for segment in self._missing:
            fields = {"path": str(self._files.segment(segment.start)), "after": segment.start - 1}
            _log.error("a segment of an event log is missing; whoever reads past it is told", extra=fields)
        self._segments = self._files.segments(starts[:-1])
        last = max((segment.last_seq for segment in self._segments), default=0)
        if starts:
            self._active = self._reopened(starts[-1], last)
            last = max(last, self._active.last_seq)
        return last

    def _reopened(self, start: int, last: int) -> _Active:
        path = self._files.segment(start)
        with mapped(path) as data:
            before = self._reserved if self._reserved > 1 else MAX_SEQ + 1
            extent = measure(data, max(start - 1, last), before)
            tail = bytes(data[extent.end :])
            if not ends_with_record(tail[1:], start - 1, before):
                extent = intact_extent(data, max(start - 1, last), before)
                tail = bytes(data[extent.end :])
        # A torn tail is half a record, and nothing else. If whole ones follow, cutting would lose them.
        if ends_with_record(tail[1:], start - 1, before):
            raise damaged(path, extent.end)
        if tail:
            fields = {"path": str(path), "offset": extent.end, "bytes": len(tail)}
            _log.warning("an event log ended within a record, which nobody has seen; it is cut off", extra=fields)
        changed = path.stat().st_mtime
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, extent.end)
            os.fdatasync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        began = self._files.first_time(start) or changed
        return _Active(start, descriptor, extent.end, extent.events, extent.last_seq, began, changed)

    # Appending

    def _append_part(self, entries: Sequence[Entry], first: int) -> list[Outcome]:
        """Append as many entries as fit the segment, in one group."""
        if self._broken:
            raise self._broken
        active = self._active
        try:
            if active is None or self._is_full(active):
                active = self._begin_segment(active)
            outcomes, parts, next_seq = self._encoded(entries, first, active)
            if next_seq > self._reserved:
                self._reserve(next_seq + _RESERVED_AHEAD)
            if parts:
                self._write(active, b"".join(parts))
        except OSError as error:
            raise self._failed(error) from error
        written = next_seq - self.next_seq
        if written:
            active.count += written
            active.last_seq = next_seq - 1
            active.last_time = self._clock()
            self.next_seq = next_seq
            self._head.advance(next_seq - 1)
        return outcomes

    def _encoded(self, entries: Sequence[Entry], first: int, active: _Active) -> tuple[list[Outcome], list[bytes], int]:
        outcomes: list[Outcome] = []
        parts: list[bytes] = []
        seq, room = self.next_seq, self.options.segment_bytes - active.size
        last = min(len(entries), first + max(1, self.options.segment_events - active.count))
        for number in range(first, last):
            kind, uid, payload = entries[number]
            try:
                made = payload(seq) if callable(payload) else payload
                parts += encode(seq, kind, uid, made)
            except Exception as error:  # whatever the function raises is for whoever gave it
                outcomes.append(error)
                continue
            outcomes.append(seq)
            seq += 1
            room -= HEADER.size + len(made) + CHECK_BYTES
            if room <= 0:
                break
        return outcomes, parts, seq

    def _is_full(self, active: _Active) -> bool:
        return active.count >= self.options.segment_events or active.size >= self.options.segment_bytes

    def _reserve(self, below: int) -> None:
        self._files.reserve(below)
        self._reserved = below

    def _write(self, active: _Active, data: bytes) -> None:
        """All or nothing: what did not reach the disk is cut off before anyone can read it."""
        view, offset = memoryview(data), active.size
        try:
            while view:
                written = os.pwrite(active.descriptor, view, offset)
                view, offset = view[written:], offset + written
            os.fdatasync(active.descriptor)
        except OSError:
            os.ftruncate(active.descriptor, active.size)
            raise
        active.size = offset

    def _failed(self, error: OSError) -> HeadgateError:
        if error.errno in _FULL:
            return CapacityError(
                f"the event log cannot grow: {error.strerror}",
                where=str(self.path),
                remedy="make room on the disk, or lower max_age or max_bytes; appending goes on by itself",
            )
        # After a failed sync nobody knows what is on the disk, and a second one may lie. Only a new start can tell.
        self._broken = StateError(
            f"the event log cannot be written: {error.strerror}",
            where=str(self.path),
            remedy="check the disk, then start again",
        )
        return self._broken

    # Segments

    def _begin_segment(self, active: _Active | None) -> _Active:
        if active:
            self._end_segment(active)
            self.retain()
        start = self.next_seq if self.next_seq > 1 else 0
        descriptor = os.open(self._files.segment(start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        now = self._clock()
        self._active = _Active(start, descriptor, 0, 0, self.next_seq - 1, now, now)
        self._files.sync_directory()
        self._save_index()
        return self._active

    def _end_segment(self, active: _Active) -> None:
        self._active = None
        os.close(active.descriptor)
        if active.count:
            self._segments.append(active.as_segment())

    def _save_index(self) -> None:
        present = [*self._segments, *([self._active.as_segment()] if self._active else [])]
        missing = [segment for segment in self._missing if present and segment.start > present[0].start]
        self._files.save_index(sorted([*missing, *present], key=lambda segment: segment.start))
