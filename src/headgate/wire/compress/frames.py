"""Payloads to zstd frames: columns of small messages, and single ones.

Specification: RFC 8878 (Zstandard).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.headers import header_line
from headgate.wire.compress.reading import bad_dictionary, zstd_dictionary

__all__ = ["Compressor", "header_lines"]


class Compressor:
    """Compresses messages, each to one frame. Not for two threads at once.

    A message is left as it is unless that saves more bytes than the headers of a compressed one cost.
    """

    def __init__(self, level: int = 3, dictionary: Dictionary | None = None) -> None:
        self.dictionary = dictionary
        self._header_bytes = len(header_line(dictionary))
        self._zstd = _zstd_compressor(level, dictionary.data if dictionary else None)

    def compress(self, payload: bytes) -> bytes:
        """Return the frame, or the payload itself if the frame would not be worth it."""
        frame = self._zstd.compress(payload)
        return frame if len(frame) + self._header_bytes < len(payload) else payload

    def compress_column(self, payloads: pa.Array) -> pa.Array:
        """Compress each value of a binary column without nulls; values that would not shrink stay as they are."""
        lengths = pc.binary_length(payloads)
        # Shorter ones cannot win, and zstd would write them for nothing.
        candidates = pc.greater(lengths, self._header_bytes)
        count = pc.sum(candidates).as_py() or 0
        if count == len(payloads):
            return self._smaller(payloads, lengths) if count else payloads
        tried = payloads.filter(candidates)
        made = self._smaller(tried, lengths.filter(candidates)) if count else tried
        return pc.replace_with_mask(payloads, candidates, made)

    def cost(self, payloads: Sequence[bytes]) -> int:
        """Bytes that messages would take on the wire, headers of compression included."""
        sizes = ((len(payload), len(self.compress(payload))) for payload in payloads)
        return sum(after + self._header_bytes if after < before else after for before, after in sizes)

    def _smaller(self, payloads: pa.Array, lengths: pa.Array) -> pa.Array:
        frames = self._frames(payloads)
        is_worth_it = pc.less(pc.add(pc.binary_length(frames), self._header_bytes), lengths)
        return frames if pc.all(is_worth_it).as_py() else pc.if_else(is_worth_it, frames, payloads)

    def _frames(self, payloads: pa.Array) -> pa.Array:
        """Arrow's own buffers go in and one comes out: no object per row on the way in, a short-lived one out."""
        segments = zstandard.BufferWithSegments(*_segments(payloads))
        # A sequence of buffers, which its stubs do not say.
        frames: Any = self._zstd.multi_compress_to_buffer(segments, threads=1)
        offsets = np.zeros(len(payloads) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, frames), np.int32, len(frames)), out=offsets[1:])
        data = b"".join(frames)
        return pa.Array.from_buffers(pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _zstd_compressor(level: int, dictionary: bytes | None) -> zstandard.ZstdCompressor:
    prepared = zstd_dictionary(dictionary)
    try:
        if prepared:
            prepared.precompute_compress(level)  # its tables, which are otherwise made once per message
    except zstandard.ZstdError as error:
        raise bad_dictionary(str(error)) from None
    return zstandard.ZstdCompressor(
        level, dict_data=prepared, write_content_size=True, write_checksum=False, write_dict_id=True
    )


def _segments(payloads: pa.Array) -> tuple[memoryview, memoryview]:
    """A binary column as zstd wants it: the bytes, and where each row begins and how long it is."""
    _, offsets, data = payloads.buffers()
    ends = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.uint64)
    return memoryview(data), np.column_stack((ends[:-1], np.diff(ends))).data


def header_lines(before: pa.Array, after: pa.Array, dictionary: Dictionary | None) -> pa.Array:
    """A column of header lines for a column that `Compressor` was given and what it made; empty where nothing changed.

    A compressed row is shorter than it was, and a row that is not compressed is the same: lengths tell them apart.
    """
    is_compressed = pc.less(pc.binary_length(after), pc.binary_length(before))
    return pc.if_else(is_compressed, pa.scalar(header_line(dictionary), pa.binary()), pa.scalar(b"", pa.binary()))
