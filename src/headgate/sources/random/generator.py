"""Made-up orders, computed from their row number alone.

Row n of a seed is the same in every run, so a replayed batch is byte for byte the first one. Whole columns are
computed at once: a hash of (seed, row) per row, and a few more words for the text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model import record

__all__ = ["KINDS", "generate", "position_column"]

KINDS = ("order", "payment", "shipment", "return")

_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_ORDINAL_ZERO = np.frombuffer(b"-00000000", dtype=np.uint8)

_GOLDEN = 0x9E3779B97F4A7C15  # spreads small seeds over all 64 bits

U64 = npt.NDArray[np.uint64]


def generate(start: int, end: int, *, seed: int, customers: int, payload_bytes: int) -> pa.RecordBatch:
    """Rows `start` (inclusive) to `end` (exclusive)."""
    rows = np.arange(start, end, dtype=np.uint64)
    words = _mix(rows + np.uint64(seed * _GOLDEN % 2**64))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rows.astype(np.int64)),
            _choose(KINDS, words % np.uint64(len(KINDS))),
            pa.array(((words >> np.uint64(8)) % np.uint64(customers)).astype(np.int64)),
            pa.array(((words >> np.uint64(24)) % np.uint64(100_000)).astype(np.float64) / 100),
            _text_column(words, payload_bytes),
            position_column(rows),
        ],
        names=["id", "kind", "customer", "amount", "note", record.POSITION],
    )


def position_column(rows: U64) -> pa.Array:
    """`model.Position(row)` as text, for a whole column."""
    count = len(rows)
    nibbles = (rows[:, None] >> np.arange(60, -4, -4, dtype=np.uint64)) & np.uint64(15)
    text = np.empty((count, 25), dtype=np.uint8)
    text[:, :16] = _HEX[nibbles]
    text[:, 16:] = _ORDINAL_ZERO
    return _fixed_width_strings(text)


def _mix(words: U64) -> U64:
    """The splitmix64 finaliser: spreads consecutive numbers over all 64 bits."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _choose(names: tuple[str, ...], index: U64) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int8)), pa.array(names)).dictionary_decode()


def _text_column(words: U64, length: int) -> pa.Array:
    """`length` letters from a to p per row."""
    count = len(words)
    wide = -(-length // 8)
    steps: U64 = np.arange(1, wide + 1, dtype=np.uint64)
    mixed = _mix(words[:, None] + steps)
    letters = (mixed.view(np.uint8).reshape(count, wide * 8)[:, :length] & np.uint8(15)) + np.uint8(ord("a"))
    return _fixed_width_strings(letters)


def _fixed_width_strings(text: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = text.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    return pa.Array.from_buffers(pa.string(), count, buffers)
