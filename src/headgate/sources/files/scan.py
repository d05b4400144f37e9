"""Looks at the file system: which files there are, where a renamed one went, where whole lines end."""

from __future__ import annotations

import glob
import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headgate.model import AuthError, DataError
from headgate.sources.files.index import FileId

__all__ = ["HEAD_BYTES", "Found", "find_by_id", "head_of", "is_file", "lines_end", "scan", "unreadable"]

HEAD_BYTES = 256
_BLOCK = 1 << 16
_HIDDEN = (".", "_")  # as Spark's own file sources leave them out


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it is now."""

    path: str
    device: int
    inode: int
    size: int
    changed_at: float

    @property
    def file_id(self) -> FileId:
        return self.device, self.inode


def scan(path: str, known: Iterable[tuple[FileId, str]] = ()) -> list[Found]:
    """The files of a path in the order of their names, and before them those of `known` that were renamed."""
    try:
        matched = [found for each in _paths(path) if (found := _look(each)) is not None]
    except OSError as error:
        raise unreadable(error, path) from None
    seen = {found.file_id for found in matched}
    missing = {file_id: was_at for file_id, was_at in known if file_id not in seen}
    beside = {folder: _inodes(folder) for folder in {str(Path(was_at).parent) for was_at in missing.values()}}
    renamed = (_look(beside[str(Path(was_at).parent)].get(inode, "")) for (_, inode), was_at in missing.items())
    return [*(found for found in renamed if found is not None and found.file_id in missing), *matched]


def _paths(path: str) -> list[str]:
    if Path(path).is_dir():
        found: Iterable[str] = (entry.path for entry in os.scandir(path))
    else:
        found = glob.glob(path, recursive=True) if glob.has_magic(path) else [path]  # noqa: PTH207 - any root
    return sorted(each for each in found if not Path(each).name.startswith(_HIDDEN))


def _look(path: str) -> Found | None:
    try:
        info = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return Found(path, info.st_dev, info.st_ino, info.st_size, info.st_mtime)


def find_by_id(file_id: FileId, was_at: str) -> Found | None:
    """Where a file is now: at its old path, or beside it under another name, as rotation leaves it."""
    found = _look(was_at)
    if found is None or found.file_id != file_id:
        found = _look(_inodes(str(Path(was_at).parent)).get(file_id[1], ""))
    return found if found is not None and found.file_id == file_id else None


def _inodes(folder: str) -> dict[int, str]:
    try:
        return {entry.inode(): entry.path for entry in os.scandir(folder)}
    except OSError:
        return {}


def is_file(file: BinaryIO, file_id: FileId) -> bool:
    """Whether the file that was opened is the one that was meant: it may have been rotated just then."""
    info = os.fstat(file.fileno())
    return (info.st_dev, info.st_ino) == file_id


def head_of(file: BinaryIO, length: int) -> int:
    """A check sum of the first bytes."""
    file.seek(0)
    return zlib.crc32(file.read(length))


def lines_end(file: BinaryIO, start: int, end: int, size: int, longest: int) -> int:
    """The end of the last whole line that begins at `start` or later and ends by `end`; `start` if there is none.

    A line that is longer than what a batch may take is taken whole.
    """
    at = end
    while at > start:
        below = max(start, at - _BLOCK)
        file.seek(below)
        newline = file.read(at - below).rfind(b"\n")
        if newline >= 0:
            return below + newline + 1
        at = below
    return _first_line_end(file, start, end, size, longest)


def _first_line_end(file: BinaryIO, start: int, end: int, size: int, longest: int) -> int:
    at = end
    while at < size and at - start <= longest:
        file.seek(at)
        block = file.read(min(_BLOCK, size - at))
        newline = block.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(block) or size
    if at - start > longest:
        raise DataError(
            f"the line at byte {start} is longer than {longest} bytes",
            where=str(file.name),
            remedy="raise maxLineBytes, or move the file away if it has no lines",
        )
    return start


def unreadable(error: OSError, path: str) -> AuthError:
    """A file that is there and cannot be read."""
    return AuthError(
        f"the file cannot be read: {error.strerror}", where=path, remedy="let headgate's user read it, or exclude it"
    )
