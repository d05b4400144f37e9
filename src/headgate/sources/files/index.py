"""Which files are known and how far each is read; and the ranges of bytes that a batch is made of.

A batch's offset carries its ranges, so that reading it again needs nothing else. The index is the sum of all ranges
so far. It only ever moves on by an offset that Spark has logged, so it is at most one batch behind, and a crash cannot
make the two disagree. It forgets files that are gone, which keeps it as small as what it describes.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any, Self

import msgspec

from headgate.model import CapacityError, StateError
from headgate.runtime.files import replace_file

__all__ = ["FileId", "Index", "KnownFile", "Point", "Range"]

FileId = tuple[int, int]  # device and inode: what stays the same when a file is renamed
_VERSION = 1


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Bytes `start` to before `end` of a file: whole lines. `base` is the place of the first in the whole stream."""

    path: str  # where the file was when the batch was planned
    device: int
    inode: int
    start: int
    end: int
    base: int
    head_bytes: int  # so many bytes of the file's begin have the check sum `head`: a used inode may come back
    head: int
    is_finished: bool = False  # nothing more is expected

    @property
    def file_id(self) -> FileId:
        return self.device, self.inode

    @property
    def is_packed(self) -> bool:
        return self.path.endswith(".gz")


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    """How far one file is read."""

    path: str
    device: int
    inode: int
    position: int
    head_bytes: int
    head: int
    is_finished: bool = False

    @property
    def file_id(self) -> FileId:
        return self.device, self.inode


class Point(msgspec.Struct, frozen=True):
    """An offset: how many batches and bytes came before, and the ranges of the batch that ends here."""

    batch: int
    place: int
    ranges: tuple[Range, ...] = ()

    def to_offset(self) -> dict[str, Any]:
        """Spark's offsets are made of numbers and texts."""
        return {"batch": self.batch, "place": self.place, "ranges": msgspec.json.encode(self.ranges).decode()}

    @classmethod
    def from_offset(cls, offset: dict[str, Any]) -> Self:
        try:
            ranges = msgspec.json.decode(offset["ranges"], type=tuple[Range, ...])
            return cls(int(offset["batch"]), int(offset["place"]), ranges)
        except (KeyError, ValueError, TypeError):
            raise StateError(
                "the offset is not one of filelines", remedy="use a checkpoint of its own for each source"
            ) from None


class Index(msgspec.Struct, frozen=True):
    """All known files after some batch."""

    first_place: int  # where the stream began; from the clock, so that no later stream uses its places again
    files: tuple[KnownFile, ...] = ()
    batch: int = 0
    version: int = _VERSION

    def advance(self, point: Point) -> Index:
        """The index after the batch that ends at `point`."""
        files = {file.file_id: file for file in self.files}
        for each in point.ranges:
            files[each.file_id] = KnownFile(
                each.path, each.device, each.inode, each.end, each.head_bytes, each.head, each.is_finished
            )
        return Index(self.first_place, tuple(files.values()), point.batch)

    def keep(self, wanted: Container[FileId]) -> Index:
        """Only these files."""
        return Index(self.first_place, tuple(f for f in self.files if f.file_id in wanted), self.batch)

    def save(self, path: Path) -> None:
        try:
            replace_file(path, msgspec.json.encode(self))
        except OSError as error:
            raise CapacityError(
                f"the index of files cannot be written: {error.strerror}",
                where=str(path),
                remedy="free disk space or make the directory writable; the batch is tried again",
            ) from None

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """None when there is none. One that makes no sense is an error, never a new begin."""
        try:
            index = msgspec.json.decode(path.read_bytes(), type=cls)
            if index.version != _VERSION:
                raise ValueError(f"version {index.version}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StateError(
                f"the index of files cannot be read: {error}",
                where=str(path),
                remedy="restore it from a backup, or start anew with: headgate reset PIPELINE",
            ) from None
        return index
