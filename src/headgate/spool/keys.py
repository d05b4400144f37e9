"""Idempotency keys that were seen lately, and the rows they stand for.

They live in memory. A segment of the spool holds the keys of its own requests; when it is sealed, they are also
written beside it (`N.keys`), and stay when the segment is deleted, until they are too old or too many.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headgate.model import StateError
from headgate.runtime.files import replace_file

__all__ = ["Keys", "Seen", "read_keys", "write_keys"]

_ENTRY = struct.Struct("<16sQQI")


class Seen(NamedTuple):
    """The request that a key stands for."""

    received_us: int
    first_row: int
    rows: int


class Keys:
    """Bounded by time and number; the oldest go first."""

    def __init__(self, window_s: float, max_keys: int) -> None:
        self._window_us = int(window_s * 1_000_000)
        self._max_keys = max_keys
        self._seen: dict[bytes, Seen] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, key: bytes, now_us: int) -> Seen | None:
        seen = self._seen.get(key) if key else None
        return seen if seen and self.is_kept(seen.received_us, now_us) else None

    def add(self, key: bytes, seen: Seen) -> None:
        if not key:
            return
        self._seen.pop(key, None)
        self._seen[key] = seen
        while len(self._seen) > self._max_keys:
            del self._seen[next(iter(self._seen))]

    def forget_old(self, now_us: int) -> None:
        while self._seen:
            oldest = next(iter(self._seen))
            if self.is_kept(self._seen[oldest].received_us, now_us):
                return
            del self._seen[oldest]

    def is_kept(self, received_us: int, now_us: int) -> bool:
        return now_us - received_us <= self._window_us


def write_keys(path: Path, entries: list[tuple[bytes, Seen]]) -> None:
    """Durable and whole, or not there."""
    data = b"".join(_ENTRY.pack(key, *seen) for key, seen in entries)
    replace_file(path, data + zlib.crc32(data).to_bytes(4, "little"))


def read_keys(path: Path) -> Iterator[tuple[bytes, Seen]]:
    """What `write_keys` wrote."""
    data = path.read_bytes()
    entries, crc = data[:-4], data[-4:]
    if len(entries) % _ENTRY.size or crc != zlib.crc32(entries).to_bytes(4, "little"):
        raise StateError(
            "the idempotency keys of a segment cannot be read",
            where=str(path),
            remedy="restore the file, or delete it: then repeats of those requests are taken for new ones",
        )
    for key, *seen in _ENTRY.iter_unpack(entries):
        yield key, Seen(*seen)
