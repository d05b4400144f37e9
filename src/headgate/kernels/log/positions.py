"""Where the records of a batch are: one compiled walk over the plain record section.

The walk writes what PostgreSQL stores, in the form in which PostgreSQL reads it: elements of a binary array, each a
length and a big-endian number. Nothing per record happens in Python. The compiler is imported with the first walk: many
know the log and never write to it.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from headgate.kernels.log.places import COLUMNS, COUNTERS, KEY_AT, KEY_LEN, MAX_INT, OFF_DELTA, TS_DELTA, VALUE_LEN

if TYPE_CHECKING:
    from headgate.kernels.log.walking import Kernel

__all__ = ["Positions", "compile_ahead", "walk"]

_compiling = threading.Lock()


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
    table = np.empty((COLUMNS, count, 2), np.int32)
    times = np.empty((count, 3), np.int32)
    counters = np.zeros(COUNTERS, np.int64)
    if not _kernel()(np.frombuffer(records, np.uint8), table, times, counters):
        return None
    keys, null_keys, gaps, long_forms, odd_headers, least, greatest, _ = counters.tolist()
    is_far = least < -MAX_INT - 1 or greatest > MAX_INT
    has_times = not is_far and (least != 0 or greatest != 0)
    return Positions(
        count,
        table[KEY_AT].tobytes(),
        table[VALUE_LEN].tobytes(),
        table[KEY_LEN].tobytes() if keys else b"",
        table[TS_DELTA].tobytes() if has_times else b"",
        times.tobytes() if is_far else b"",
        table[OFF_DELTA].tobytes() if gaps else b"",
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
    from headgate.kernels.log.walking import compile_walk

    return compile_walk()


if __name__ == "__main__":
    compile_ahead()
