"""The spool as the server writes it: requests, durable and numbered, until they are delivered.

    <spool>/lock         held by the living server with flock
    <spool>/N.seg        frames of requests; N is the number of its first row
    <spool>/N.keys       the idempotency keys of a sealed segment
    <spool>/id, tail, delivered    see `marks`

A group of requests is written and fsynced together, then numbered as durable (`tail`), then answered. What a crash
leaves half written behind the last fsync was never answered, and is cut off at the next start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headgate.model import StateError
from headgate.runtime.failpoints import failpoint
from headgate.runtime.files import sync_directory
from headgate.spool.disk import refused_by_disk, take_lock
from headgate.spool.frames import Request, encode_frame
from headgate.spool.keys import Keys, Seen, read_keys, write_keys
from headgate.spool.marks import Marks
from headgate.spool.segments import keys_path, scan_segment, segment_path, segments

__all__ = ["Receipt", "Spool"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The rows that a request became, now or when it came for the first time."""

    first_row: int
    rows: int
    duplicate: bool = False


class Spool:
    """Appends groups of requests. One thread uses it."""

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int = 1 << 30,
        segment_bytes: int = 4 << 20,
        window_s: float = 86_400.0,
        max_keys: int = 500_000,
    ) -> None:
        self.directory = directory
        self.marks = Marks(directory)
        self._max_bytes = max_bytes
        self._segment_bytes = max(1, min(segment_bytes, max_bytes // 4))
        self._max_keys = max_keys
        self._keys = Keys(window_s, max_keys)
        self._sizes: dict[int, int] = {}  # bytes of each segment, the one being written last
        self._own_keys: list[tuple[bytes, Seen]] = []  # of the segment being written
        self._sealed_keys: dict[int, tuple[int, int]] = {}  # of each `.keys` file: how many, and the newest one's time
        self._file = -1
        self._damaged = False  # the segment may be longer than what was fsynced
        self.next_row = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(directory)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def held_bytes(self) -> int:
        return sum(tuple(self._sizes.values()))  # a copy: the status asks from another thread

    def append(self, requests: Sequence[Request]) -> list[Receipt | None]:
        """Make requests durable, all with one fsync; None for one that found no room.

        Raises `CapacityError` when the disk refuses: then none of them is there.
        """
        now_us = time.time_ns() // 1000
        receipts: list[Receipt | None] = []
        fresh: dict[bytes, Seen] = {}
        frames: list[bytes] = []
        row = self.next_row
        room = self._room()
        for request in requests:
            seen = fresh.get(request.key) or self._keys.find(request.key, now_us)
            if seen is not None:
                receipts.append(Receipt(seen.first_row, seen.rows, duplicate=True))
                continue
            frame = encode_frame(row, request)
            if len(frame) > room:
                receipts.append(None)
                continue
            room -= len(frame)
            frames.append(frame)
            receipts.append(Receipt(row, len(request.bodies)))
            if request.key:
                fresh[request.key] = Seen(request.received_us, row, len(request.bodies))
            row += len(request.bodies)
        if frames:
            self._write(b"".join(frames))
            self._acknowledge(row, fresh, now_us)
        return receipts

    def release(self, *, all_of_it: bool = False) -> None:
        """Delete segments whose rows are all delivered; with `all_of_it`, also what the one being written holds."""
        delivered = self.marks.delivered()
        if all_of_it and self._sizes[self._current] and self.next_row <= delivered:
            self._rotate()
        order = list(self._sizes)
        for first, following in pairwise(order):
            if following > delivered:
                break
            segment_path(self.directory, first).unlink(missing_ok=True)
            del self._sizes[first]
        self._forget_keys(time.time_ns() // 1000)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._lock.release()

    @property
    def _current(self) -> int:
        return next(reversed(self._sizes))

    def _room(self) -> int:
        if self._max_bytes - self.held_bytes < self._segment_bytes:
            with suppress(OSError):
                self.release(all_of_it=True)
        return self._max_bytes - self.held_bytes

    def _write(self, data: bytes) -> None:
        with refused_by_disk(self.directory):
            self._mend()
            self._damaged = True
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
        self._damaged = False
        self._sizes[self._current] += len(data)

    def _mend(self) -> None:
        """After a write that failed: cut off what was never answered."""
        if self._damaged:
            size = self._sizes[self._current]
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)
            os.fdatasync(self._file)
            self._damaged = False

    def _acknowledge(self, next_row: int, fresh: dict[bytes, Seen], now_us: int) -> None:
        failpoint("webhook.synced")
        self.next_row = next_row
        for key, seen in fresh.items():
            self._keys.add(key, seen)
            self._own_keys.append((key, seen))
        self._keys.forget_old(now_us)
        with refused_by_disk(self.directory):
            self.marks.write_tail(next_row)
        if self._sizes[self._current] >= self._segment_bytes:
            with suppress(OSError):  # no room for a new file: this segment grows longer, and all of it is durable
                self._rotate()
                self.release()

    def _rotate(self) -> None:
        """Seal the segment and begin the next one. A crash in between leaves a last segment with its keys."""
        self._mend()
        current = self._current
        write_keys(keys_path(self.directory, current), self._own_keys)
        newest = max((seen.received_us for _, seen in self._own_keys), default=0)
        self._begin(self.next_row)
        self._sealed_keys[current] = (len(self._own_keys), newest)
        self._own_keys = []

    def _begin(self, first_row: int) -> None:
        path = segment_path(self.directory, first_row)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            sync_directory(self.directory)
        except OSError:
            os.close(file)
            path.unlink()  # or readers would look there for the rows that go on in the old one
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._sizes[first_row] = 0

    def _forget_keys(self, now_us: int) -> None:
        """Delete files of keys that are too old, or beyond the number that is kept."""
        kept = len(self._own_keys)
        for first, (count, newest) in sorted(self._sealed_keys.items(), reverse=True):
            if first not in self._sizes and (kept >= self._max_keys or not self._keys.is_kept(newest, now_us)):
                keys_path(self.directory, first).unlink(missing_ok=True)
                del self._sealed_keys[first]
            kept += count

    def _recover(self) -> None:
        """Take up where the last server ended, however it ended."""
        reached = max(self.marks.read_tail() or 0, self.marks.delivered())
        found = segments(self.directory)
        self._load_sealed(found)
        for first in found[:-1]:
            self._sizes[first] = segment_path(self.directory, first).stat().st_size
        if found:
            self._take_up(found[-1], reached)
        else:
            self.next_row = reached
            self._begin(reached)
        self.marks.prepare()
        self.marks.write_tail(self.next_row)
        self.release()

    def _load_sealed(self, found: list[int]) -> None:
        last = found[-1] if found else -1
        sealed = sorted(int(path.stem) for path in self.directory.glob("*.keys"))
        for first in sorted({*sealed, *found[:-1]} - {last}):
            own = keys_path(self.directory, first)
            entries = list(read_keys(own)) if first in sealed else scan_segment(self.directory, first).keys
            for key, seen in entries:
                self._keys.add(key, seen)
            if first in sealed:
                self._sealed_keys[first] = (len(entries), max((seen.received_us for _, seen in entries), default=0))

    def _take_up(self, first: int, reached: int) -> None:
        """Go on with the last segment, without its torn tail."""
        scan = scan_segment(self.directory, first)
        if scan.next_row < reached:
            raise StateError(
                f"the spool ends at row {scan.next_row}, but {reached} rows were accepted: files are damaged or gone",
                where=str(self.directory),
                remedy="restore it; or give it up: move the directory away and reset the pipeline",
            )
        keys_path(self.directory, first).unlink(missing_ok=True)
        self._file = os.open(segment_path(self.directory, first), os.O_RDWR | os.O_CLOEXEC)
        os.ftruncate(self._file, scan.intact_bytes)
        os.fsync(self._file)
        os.lseek(self._file, scan.intact_bytes, os.SEEK_SET)
        self._sizes[first] = scan.intact_bytes
        self.next_row = scan.next_row
        self._own_keys = scan.keys
        for key, seen in scan.keys:
            self._keys.add(key, seen)
