"""Where the records of a batch are: one compiled walk over the plain record section.

The walk writes what PostgreSQL stores, in the form in which PostgreSQL reads it: elements of a binary array, each a
length and a big-endian number. Nothing per record happens in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from numba import types

from headgate.kernels.jit import BYTES_READ, NUMBERS, compile_kernel, part

__all__ = ["Positions", "compile_ahead", "varint_width", "walk"]

_MAX_INT = 2**31 - 1
_compiling = threading.Lock()

# The rows of the kernel's table, and of its counters.
_KEY_AT, _VALUE_LEN, _KEY_LEN, _TS_DELTA, _OFF_DELTA = range(5)
_COLUMNS = 5
_KEYS, _NULL_KEYS, _GAPS, _LONG_FORMS, _ODD_HEADERS, _LEAST_TS, _GREATEST_TS, _COMPILED_FROM = range(8)
_COUNTERS = 8

Bytes: TypeAlias = npt.NDArray[np.uint8]
Table: TypeAlias = npt.NDArray[np.int32]
Counters: TypeAlias = npt.NDArray[np.int64]
Kernel: TypeAlias = Callable[[Bytes, Table, Table, Counters], bool]


class Positions(msgspec.Struct, frozen=True):
    """Elements of PostgreSQL's binary arrays; empty stands for null."""

    count: int
    key_at: bytes
    value_len: bytes
    key_len: bytes
    ts_delta: bytes
    ts_far: bytes
    off_delta: bytes
    has_null_keys: bool
    has_long_forms: bool  # a length that is not written as short as it could be, so that it cannot be computed
    has_odd_headers: bool  # keys of headers that are not ASCII
    least_ts_delta: int
    greatest_ts_delta: int

    def without_key(self) -> tuple[int, ...]:
        """Which records have no key."""
        if not self.key_len:
            return tuple(range(self.count))
        return tuple(np.flatnonzero(np.frombuffer(self.key_len, ">i4")[1::2] < 0).tolist())


def walk(records: bytes | memoryview, count: int) -> Positions | None:
    """The positions of `count` records, at least one, that must be all there is. None: these are not records."""
    table = np.empty((_COLUMNS, count, 2), np.int32)
    times = np.empty((count, 3), np.int32)
    counters = np.zeros(_COUNTERS, np.int64)
    if not _kernel()(np.frombuffer(records, np.uint8), table, times, counters):
        return None
    keys, null_keys, gaps, long_forms, odd_headers, least, greatest, _ = counters.tolist()
    is_far = least < -_MAX_INT - 1 or greatest > _MAX_INT
    has_times = not is_far and (least != 0 or greatest != 0)
    return Positions(
        count,
        table[_KEY_AT].tobytes(),
        table[_VALUE_LEN].tobytes(),
        table[_KEY_LEN].tobytes() if keys else b"",
        table[_TS_DELTA].tobytes() if has_times else b"",
        times.tobytes() if is_far else b"",
        table[_OFF_DELTA].tobytes() if gaps else b"",
        null_keys > 0,
        long_forms > 0,
        odd_headers > 0,
        least,
        greatest,
    )


def compile_ahead() -> None:
    """The first walk on a machine takes seconds, which this lets one spend earlier."""
    _kernel()


def _kernel() -> Kernel:
    with _compiling:
        return _compiled()


@cache
def _compiled() -> Kernel:
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
                counters[_ODD_HEADERS] += 1
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
        counters[_COMPILED_FROM] = sources
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
            if at < 0 or offset <= last_offset or offset > _MAX_INT:
                return False
            key_len, key_end = _skip(data, at, end)
            if key_end < 0:
                return False
            value_len, at = _skip(data, key_end, end)
            if at < 0:
                return False
            if at - max(value_len, 0) - key_end != varint_width(value_len):
                counters[_LONG_FORMS] += 1
            at = _skip_headers(data, at, end, counters)
            if at != end:
                return False
            counters[_KEYS if key_len >= 0 else _NULL_KEYS] += 1
            counters[_GAPS] += offset != record
            least, greatest = (time, time) if record == 0 else (min(least, time), max(greatest, time))
            last_offset = offset
            for column in range(_COLUMNS):
                _put(table[column, record], 0, 4)
            _put(table[_KEY_AT, record], 1, key_end - max(key_len, 0))
            _put(table[_VALUE_LEN, record], 1, value_len)
            _put(table[_KEY_LEN, record], 1, key_len)
            _put(table[_TS_DELTA, record], 1, time)
            _put(table[_OFF_DELTA, record], 1, offset)
            _put(times[record], 0, 8)
            _put(times[record], 1, time >> 32)
            _put(times[record], 2, time)
        counters[_LEAST_TS], counters[_GREATEST_TS] = least, greatest
        return at == stop

    return kernel


if __name__ == "__main__":
    compile_ahead()
