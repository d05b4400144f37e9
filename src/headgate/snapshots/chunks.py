"""Encoded rows -> the payloads of chunks, without a step per row.

A chunk is a map whose last field, `data`, is the list of rows. Rows come as one Arrow column whose values lie one
behind the other, so a chunk is its head, the list's begin and a slice of that memory (in JSON with commas between).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.wire.envelope import encode_fields

__all__ = ["Chunk", "ChunkMaker", "add_checksums", "payload_column"]

_ARRAY_32 = struct.Struct("!BI")
_MASK = (1 << 64) - 1


class Chunk(NamedTuple):
    """One message to be. `number` is its place in the subject; the payload is its pieces, one behind the other."""

    number: int
    rows: int
    pieces: tuple[bytes | memoryview, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def payload(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def checksum(self) -> int:
        digest = hashlib.sha256()
        for piece in self.pieces:
            digest.update(piece)
        return int.from_bytes(digest.digest()[:8], "big")


def payload_column(chunks: Sequence[Chunk]) -> pa.Array:
    """The payloads as a column; each byte is copied once."""
    ends = np.cumsum([0, *(chunk.size for chunk in chunks)], dtype=np.int32)
    data = b"".join(piece for chunk in chunks for piece in chunk.pieces)
    return pa.Array.from_buffers(pa.binary(), len(chunks), [None, pa.py_buffer(ends), pa.py_buffer(data)])


class ChunkMaker:
    """Makes the chunks of one range of a table. `fields` are what all chunks of the snapshot share."""

    def __init__(
        self, fields: dict[str, Any], *, first_number: int, max_rows: int, max_bytes: int, is_json: bool
    ) -> None:
        self._fields = fields
        self._number = first_number
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._is_json = is_json

    def chunks(self, rows: pa.Array) -> Iterator[Chunk]:
        """The rows of a batch, as few chunks as the limits allow; a row that exceeds them has one for itself."""
        offsets = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1, rows.offset * 4).astype(np.int64)
        data = memoryview(rows.buffers()[2] or b"")
        first = 0
        while first < len(rows):
            end = int(np.searchsorted(offsets, offsets[first] + self._room(len(rows) - first), side="right")) - 1
            end = max(first + 1, min(end, first + self._max_rows))
            yield self._chunk(rows, data, offsets, first, end)
            first = end

    def _room(self, rows: int) -> int:
        commas = min(rows, self._max_rows) if self._is_json else 0
        return max(1, self._max_bytes - commas)

    def _chunk(self, rows: pa.Array, data: memoryview, offsets: np.ndarray[Any, Any], first: int, end: int) -> Chunk:
        number, self._number = self._number, self._number + 1
        head = encode_fields({**self._fields, "chunk": number, "data": []}, is_json=self._is_json)
        if self._is_json:
            pieces: tuple[bytes | memoryview, ...] = (
                head[:-2],
                b",".join(rows.slice(first, end - first).to_pylist()),
                b"]}",
            )
        else:
            pieces = head[:-1], _ARRAY_32.pack(0xDD, end - first), data[offsets[first] : offsets[end]]
        return Chunk(number, end - first, pieces)


def add_checksums(checksums: Iterator[int] | list[int]) -> str:
    """The snapshot's: independent of the order of chunks."""
    return f"{sum(checksums) & _MASK:016x}"
