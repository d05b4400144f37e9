"""The files of a log's directory.

evts-0, evts-10001, ...   segments, named after the first sequence number they may hold
sequence                  every number below it may have been given out
index.json                sizes and times of the segments; made anew if it is missing
head                      the last durable number, for readers in other processes
lock                      held by the one writer
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from headgate.eventlog.records import MAX_SEQ, all_headers, measure
from headgate.model import OccupiedError, StateError
from headgate.runtime.file_lock import FileLock
from headgate.runtime.files import replace_file, sync_directory

__all__ = ["LogFiles", "Segment", "damaged", "mapped"]

_log = logging.getLogger(__name__)

_PREFIX = "evts-"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that is complete. Times are seconds since 1970."""

    start: int
    last_seq: int
    size: int
    first_time: float
    last_time: float


@contextmanager
def mapped(path: Path) -> Iterator[mmap | bytes]:
    """A file's content, as far as it went when it was opened."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap(file.fileno(), 0, access=ACCESS_READ) as view:
            yield view


class LogFiles:
    """Finds, reads and replaces the files of one log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head_path = path / "head"
        self._sequence_path = path / "sequence"
        self._index_path = path / "index.json"

    def starts(self) -> list[int]:
        """The starts of the segments, in order; none if there is no directory."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        numbers = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())

    def segment(self, start: int) -> Path:
        return self.path / f"{_PREFIX}{start}"

    def size(self) -> int:
        """Bytes of all segments."""
        total = 0
        for start in self.starts():
            with suppress(FileNotFoundError):  # removed in the meantime, for its age
                total += self.segment(start).stat().st_size
        return total

    def lock(self) -> FileLock:
        """Become the one writer, until the lock is released."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / "lock")
        if not lock.acquire():
            raise OccupiedError(
                "another process writes this event log",
                where=str(self.path),
                remedy="stop it, or give this one a directory of its own",
            )
        return lock

    def sync_directory(self) -> None:
        """Make the names of new files durable."""
        sync_directory(self.path)

    def reserved(self) -> int:
        """The lowest sequence number that nobody can have been given; 1 in a new log."""
        try:
            text = self._sequence_path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return 1
        except UnicodeDecodeError:
            text = ""
        if not text.isdigit() or not 0 < int(text) <= MAX_SEQ + 1:
            raise StateError(
                "this is no sequence number",
                where=str(self._sequence_path),
                remedy="write a number into it that is above every number this log has given out",
            )
        return int(text)

    def reserve(self, below: int) -> None:
        """Written in place: so little lies in one sector, which a disk writes as a whole or not at all."""
        is_new = not self._sequence_path.exists()
        descriptor = os.open(self._sequence_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, b"%020d\n" % below, 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            self.sync_directory()

    def segments(self, starts: list[int]) -> list[Segment]:
        """These segments, from the index or, where it knows nothing of one, from the file itself."""
        known = {segment.start: segment for segment in self._indexed()}
        found: list[Segment] = []
        for start in starts:
            size = self.segment(start).stat().st_size
            segment = known.get(start)
            found.append(segment if segment and segment.size == size else self._measured(start))
        return found

    def first_time(self, start: int) -> float | None:
        """When a segment was begun, if the index knows."""
        return next((each.first_time for each in self._indexed() if each.start == start), None)

    def save_index(self, segments: list[Segment]) -> None:
        """What is not saved is found out again, so a full disk is no reason to stop."""
        with suppress(OSError):
            replace_file(
                self._index_path, json.dumps([asdict(segment) for segment in segments]).encode(), durable=False
            )

    def _indexed(self) -> list[Segment]:
        try:
            return [Segment(**fields) for fields in json.loads(self._index_path.read_bytes())]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError):
            _log.warning("the index of an event log is unreadable and made anew", extra={"path": str(self.path)})
            return []

    def _measured(self, start: int) -> Segment:
        path = self.segment(start)
        with mapped(path) as data:
            extent, size = measure(data, start - 1), len(data)
            last_seq = extent.last_seq
            if extent.end != size:
                fields = {"path": str(path), "offset": extent.end}
                _log.error("the bytes here are no record; whoever reads past them is told", extra=fields)
                last_seq = max((header.seq for header in all_headers(data, start - 1)), default=last_seq)
        changed = path.stat().st_mtime
        return Segment(start, last_seq, size, changed, changed)

    def missing(self, starts: list[int]) -> list[Segment]:
        """Segments that the index knows behind the first of these, and that are not among them.

        Those that were removed for their age are all before it.
        """
        present = set(starts)
        return [each for each in self._indexed() if starts and each.start > starts[0] and each.start not in present]


def damaged(path: Path, offset: int) -> StateError:
    return StateError(
        "the bytes here are no record, and there are records behind them",
        where=f"{path}, offset {offset}",
        remedy="restore the file from a copy, or: headgate eventlog repair --path DIRECTORY, which saves what it can",
    )
