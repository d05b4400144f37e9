"""The compiled walk over the records of a batch, which `positions` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import types

from headgate.kernels.jit import BYTES_READ, NUMBERS, compile_kernel, part
from headgate.kernels.log.places import (
    COLUMNS,
    COMPILED_FROM,
    GAPS,
    GREATEST_TS,
    KEY_AT,
    KEY_LEN,
    KEYS,
    LEAST_TS,
    LONG_FORMS,
    MAX_INT,
    NULL_KEYS,
    ODD_HEADERS,
    OFF_DELTA,
    TS_DELTA,
    VALUE_LEN,
)

__all__ = ["Kernel", "compile_walk", "varint_width"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Table: TypeAlias = npt.NDArray[np.int32]
Counters: TypeAlias = npt.NDArray[np.int64]
Kernel: TypeAlias = Callable[[Bytes, Table, Table, Counters], bool]


def compile_walk() -> Kernel:
    """Compile the walk, or take it from the cache."""
    table, times = types.Array(types.int32, 3, "C"), types.Array(types.int32, 2, "C")
    return compile_kernel(types.boolean(BYTES_READ, table, times, NUMBERS), _walking)


@part
def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """A zigzag number of at most 64 bits, and where it ends: -1 if it does not."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < 70:
        byte = np.uint64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            half = np.int64(value >> np.uint64(1))
            return (-half - 1 if value & np.uint64(1) else half), at  # type: ignore[return-value]
        shift += np.uint64(7)
    return 0, -1


@part
def _skip(data: Any, at: int, end: int) -> tuple[int, int]:
    """A length, or -1 for null, and where the bytes after it end: -1 if they do not."""
    size, at = _varint(data, at, end)
    if at < 0 or size < -1 or size > end - at:
        return 0, -1
    return size, at + max(size, 0)


@part
def _skip_headers(data: Any, at: int, end: int, counters: Any) -> int:
    count, at = _varint(data, at, end)
    if at < 0 or count < 0 or count > (end - at) // 2:
        return -1
    for _ in range(count):
        size, stop = _skip(data, at, end)
        if stop < 0 or size < 0:
            return -1
        for position in range(stop - size, stop):
            if data[position] >= 0x80:
                counters[ODD_HEADERS] += 1
        size, at = _skip(data, stop, end)
        if at < 0:
            return -1
    return at


@part
def _put(row: Any, index: int, value: int) -> None:
    """A number as PostgreSQL sends it: four bytes, the greatest first."""
    row[index] = (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | (value >> 24) & 0xFF


@part
def varint_width(size: int) -> int:
    """Of a length, or of -1 for null; for compiled code."""
    zigzag = 1 if size < 0 else size << 1
    width = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        width += 1
    return width


def _walking(sources: int) -> Kernel:
    def kernel(data: Any, table: Any, times: Any, counters: Any) -> bool:
        counters[COMPILED_FROM] = sources
        at, stop = 0, len(data)
        least, greatest, last_offset = 0, 0, -1
        for record in range(table.shape[1]):
            size, at = _varint(data, at, stop)
            if at < 0 or size < 1 or size > stop - at:
                return False
            end = at + size
            time, at = _varint(data, at + 1, end)  # the attributes of a record mean nothing yet
            if at < 0:
                return False
            offset, at = _varint(data, at, end)
            if at < 0 or offset <= last_offset or offset > MAX_INT:
                return False
            key_len, key_end = _skip(data, at, end)
            if key_end < 0:
                return False
            value_len, at = _skip(data, key_end, end)
            if at < 0:
                return False
            if at - max(value_len, 0) - key_end != varint_width(value_len):
                counters[LONG_FORMS] += 1
            at = _skip_headers(data, at, end, counters)
            if at != end:
                return False
            counters[KEYS if key_len >= 0 else NULL_KEYS] += 1
            counters[GAPS] += offset != record
            least, greatest = (time, time) if record == 0 else (min(least, time), max(greatest, time))
            last_offset = offset
            for column in range(COLUMNS):
                _put(table[column, record], 0, 4)
            _put(table[KEY_AT, record], 1, key_end - max(key_len, 0))
            _put(table[VALUE_LEN, record], 1, value_len)
            _put(table[KEY_LEN, record], 1, key_len)
            _put(table[TS_DELTA, record], 1, time)
            _put(table[OFF_DELTA, record], 1, offset)
            _put(times[record], 0, 8)
            _put(times[record], 1, time >> 32)
            _put(times[record], 2, time)
        counters[LEAST_TS], counters[GREATEST_TS] = least, greatest
        return at == stop

    return kernel
