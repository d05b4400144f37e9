"""Numbers and dates as PostgreSQL prints them: checked as strictly as the reference does, and read exactly."""

from __future__ import annotations

import numpy as np

from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.layout import Bytes

MINUS, POINT, ZERO, NINE = (ord(c) for c in "-.09")

_DIGIT = "0123456789"


def _pattern(text: str) -> tuple[Bytes, Bytes]:
    """The least and the greatest byte at each place; `d` is any digit."""
    low = text.replace("d", "0").encode()
    high = text.replace("d", "9").encode()
    return np.frombuffer(low, dtype=np.uint8), np.frombuffer(high, dtype=np.uint8)


DATE_LOW, DATE_HIGH = _pattern("dddd-dd-dd")
CLOCK_LOW, CLOCK_HIGH = _pattern("dddd-dd-dd dd:dd:dd")

# The 18 digits before the last of the greatest number of 19 digits that a signed 64-bit integer can hold.
LAST_SAFE = -(2**63 // 10)


@part
def all_digits(src: Bytes, start: int, stop: int) -> bool:
    good = True
    for i in range(start, stop):
        good &= (src[i] >= ZERO) & (src[i] <= NINE)
    return good


@part
def is_date(src: Bytes, start: int, stop: int) -> bool:
    """`2025-01-31`. Other years, BC and infinity are left to the reference."""
    if stop - start != 10:
        return False
    good = True
    for i in range(10):
        good &= (src[start + i] >= DATE_LOW[i]) & (src[start + i] <= DATE_HIGH[i])
    return good


@part
def is_timestamp(src: Bytes, start: int, stop: int) -> bool:
    """`2025-01-31 12:00:34`, with one to six decimals or none."""
    size = stop - start
    if size < 19 or size > 26 or size == 20:
        return False
    good = True
    for i in range(19):
        good &= (src[start + i] >= CLOCK_LOW[i]) & (src[start + i] <= CLOCK_HIGH[i])
    if size == 19 or not good:
        return good
    return src[start + 19] == POINT and all_digits(src, start + 20, stop)


@leaf
def ends_in_utc(src: Bytes, start: int, stop: int) -> bool:
    return stop - start > 3 and src[stop - 3] == 43 and src[stop - 2] == ZERO and src[stop - 1] == ZERO


@part
def parse_int(src: Bytes, start: int, stop: int) -> tuple[bool, int]:
    """A 64-bit integer without superfluous signs or zeros."""
    negative = stop > start and src[start] == MINUS
    first = start + 1 if negative else start
    count = stop - first
    if count < 1 or count > 19 or not all_digits(src, first, stop):
        return False, 0
    if src[first] == ZERO and (count > 1 or negative):
        return False, 0
    # Counted downwards, since there is one more negative number than there are positive ones.
    value = np.int64(0)
    for i in range(first, min(stop, first + 18)):
        value = value * 10 - (np.int64(src[i]) - ZERO)
    if count == 19:
        last = np.int64(src[stop - 1]) - ZERO
        if value < LAST_SAFE or (value == LAST_SAFE and last > (8 if negative else 7)):
            return False, 0
        value = value * 10 - last
    return True, value if negative else -value
