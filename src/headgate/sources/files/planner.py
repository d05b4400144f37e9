"""Chooses the next batch: files that are known first, in the order they were found, then new ones by name.

So a rotated file is read to its end before the file that took its name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headgate.model import StateError
from headgate.sources.files.index import FileId, Index, KnownFile, Point, Range
from headgate.sources.files.options import FileLinesOptions
from headgate.sources.files.scan import HEAD_BYTES, Found, head_of, is_file, lines_end, scan, unreadable

__all__ = ["Planner", "bytes_left", "remove_finished"]

_log = logging.getLogger(__name__)


class Planner:
    """Plans the batches of one stream, on the driver's machine."""

    def __init__(self, options: FileLinesOptions) -> None:
        self._options = options
        self._path = options.index_path
        self._until: dict[FileId, int] | None = None  # how far a run that ends may go in each file

    def begin(self) -> Point:
        """Return where the source begins; stable for as long as the directory lives."""
        return Point(0, self._begun().first_place)

    def end_here(self) -> None:
        """Nothing that comes later is read."""
        self._until = {found.file_id: found.size for found in self._scan(self._begun())}

    def next(self, start: Point, max_bytes: int | None) -> Point:
        """Where the batch that begins at `start` ends: `start` itself while there is nothing to read."""
        index = self._caught_up(start)
        place = start.place
        ranges: list[Range] = []
        for found, known in self._in_order(index):
            if max_bytes is not None and len(ranges) >= self._options.max_files_per_trigger:
                break
            left = None if max_bytes is None else max_bytes - (place - start.place)
            if left is not None and left <= 0:
                break
            chosen = self._range(found, known, place, left)
            if chosen is not None:
                ranges.append(chosen)
                place += max(1, chosen.end - chosen.start)
        return Point(start.batch + 1, place, tuple(ranges)) if ranges else start

    def _begun(self) -> Index:
        index = Index.load(self._path)
        if index is None:
            index = Index(time.time_ns())
            if self._options.start_at == "end":
                index = Index(index.first_place, tuple(map(self._skipped, scan(self._options.path))))
            index.save(self._path)
        return index

    def _skipped(self, found: Found) -> KnownFile:
        """A file as if all its whole lines were read."""
        chosen = self._range(found, None, 0, None)
        position, head_bytes, head = (chosen.end, chosen.head_bytes, chosen.head) if chosen else (0, 0, 0)
        return KnownFile(found.path, found.device, found.inode, position, head_bytes, head)

    def _caught_up(self, start: Point) -> Index:
        """The index after the batch that ended at `start`, which Spark has logged as done."""
        index = self._begun()
        if index.batch == start.batch - 1:
            index = index.advance(start)
            if self._options.delete_after_read:
                remove_finished(index.files)
            index = index.keep({found.file_id for found in self._scan(index)})
            index.save(self._path)
        if index.batch != start.batch:
            raise StateError(
                f"the index of files is at batch {index.batch}, the checkpoint at batch {start.batch}",
                where=str(self._path),
                remedy="put both back as they were, or start anew with: headgate reset PIPELINE",
            )
        return index

    def _scan(self, index: Index) -> list[Found]:
        return scan(self._options.path, [(file.file_id, file.path) for file in index.files if not file.is_finished])

    def _in_order(self, index: Index) -> Iterator[tuple[Found, KnownFile | None]]:
        found = {each.file_id: each for each in self._scan(index)}
        for known in index.files:
            if known.file_id in found:
                yield found.pop(known.file_id), known
        for each in found.values():
            yield each, None

    def _range(self, found: Found, known: KnownFile | None, place: int, left: int | None) -> Range | None:
        size = found.size if self._until is None else min(found.size, self._until.get(found.file_id, 0))
        is_idle = bool(self._options.finished_after_ms) and self._is_idle(found)
        if known is not None and found.size == known.position and (known.is_finished or not is_idle):
            return None  # the usual case, decided without opening the file
        try:
            with Path(found.path).open("rb") as file:
                if not is_file(file, found.file_id):
                    return None  # renamed between the look and now; the next look finds it
                start = self._start(file, found, known)
                end, is_finished = self._end(file, found, start, size, left, is_idle)
                if end <= start and not (is_finished and (known is None or not known.is_finished)):
                    return None
                head_bytes = min(end, HEAD_BYTES)
                head = head_of(file, head_bytes)
        except FileNotFoundError:
            return None  # gone between the look and now
        except OSError as error:
            raise unreadable(error, found.path) from None
        if known is not None and start < known.position:
            _log.warning("the file was truncated or replaced: read from its begin", extra={"file": found.path})
        return Range(found.path, *found.file_id, start, end, place, head_bytes, head, is_finished)

    def _start(self, file: BinaryIO, found: Found, known: KnownFile | None) -> int:
        if known is None:
            return 0
        if found.size < known.position or head_of(file, known.head_bytes) != known.head:
            return 0  # truncated or replaced
        return found.size if found.path.endswith(".gz") else known.position

    def _end(
        self, file: BinaryIO, found: Found, start: int, size: int, left: int | None, is_idle: bool
    ) -> tuple[int, bool]:
        """Where to stop, and whether that is the end for good."""
        if found.path.endswith(".gz"):  # all or nothing, and nothing while somebody may still write it
            is_ready = size == found.size and size > start and (is_idle or not self._options.finished_after_ms)
            return (size, True) if is_ready else (start, False)
        goal = size if left is None else min(size, start + left)
        end = lines_end(file, start, goal, size, self._options.max_line_bytes) if goal > start else start
        if is_idle and size == found.size and goal == size:
            return size, True  # a last line without its newline will not get one any more
        return end, False

    def _is_idle(self, found: Found) -> bool:
        return (time.time() - found.changed_at) * 1000 >= self._options.finished_after_ms


def bytes_left(options: FileLinesOptions, delivered: Point | None) -> int:
    """How many bytes were written behind the delivered ones. Changes nothing, so that anybody may ask at any time."""
    index = Index.load(options.index_path)
    if index is None:
        return 0 if options.start_at == "end" else sum(found.size for found in scan(options.path))
    if delivered is not None and index.batch == delivered.batch - 1:
        index = index.advance(delivered)
    known = {file.file_id: file.position for file in index.files}
    files = scan(options.path, [(file.file_id, file.path) for file in index.files if not file.is_finished])
    positions = ((found.size, known.get(found.file_id, 0)) for found in files)
    return sum(size - position if size >= position else size for size, position in positions)


def remove_finished(files: tuple[KnownFile, ...] | tuple[Range, ...]) -> None:
    """Remove the finished ones that are still as they were read."""
    for file in files:
        if not file.is_finished:
            continue
        position = file.end if isinstance(file, Range) else file.position
        path = Path(file.path)
        try:
            info = path.stat()
            if (info.st_dev, info.st_ino, info.st_size) == (*file.file_id, position):
                path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(error, file.path) from None
