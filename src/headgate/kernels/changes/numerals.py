"""Integers, dates and times as PostgreSQL prints them: as strict as the reference, which reads whatever fails here."""

from __future__ import annotations

import numpy as np

from headgate.kernels.changes.layout import Bytes
from headgate.kernels.jit import inlined, part, signed

__all__ = ["digits_end", "is_date", "is_timestamp", "is_utc_timestamp", "parse_int"]

ZERO, NINE, MINUS, PLUS, POINT = b"09-+."


def _pattern(text: str) -> tuple[Bytes, Bytes]:
    """The least and the greatest byte for each place; `d` is any digit."""
    least, greatest = text.replace("d", "0"), text.replace("d", "9")
    return np.frombuffer(least.encode(), dtype=np.uint8), np.frombuffer(greatest.encode(), dtype=np.uint8)


LEAST, GREATEST = _pattern("dddd-dd-dd dd:dd:dd")
DATE_BYTES = 10
CLOCK_BYTES = 19
MOST_DECIMALS = 6

# The last safe step towards the least 64-bit integer, and its last digit.
LAST_STEP = -(2**63 // 10)
LAST_DIGIT = 2**63 % 10


@inlined
def digits_end(src: Bytes, at: int, stop: int) -> int:
    """Where the digits end that begin there."""
    while at < stop and ZERO <= src[at] <= NINE:
        at += 1
    return at


@part
def matches(src: Bytes, start: int, size: int) -> bool:
    """Whether the first `size` bytes follow the pattern of date and time."""
    at = 0
    while at < size and LEAST[at] <= src[start + at] <= GREATEST[at]:
        at += 1
    return at == size


@part
def is_date(src: Bytes, start: int, stop: int) -> bool:
    """`2025-01-31`: four digits of the year, no BC, no infinity."""
    return stop - start == DATE_BYTES and matches(src, start, DATE_BYTES)


@part
def is_timestamp(src: Bytes, start: int, stop: int) -> bool:
    """`2025-01-31 12:00:34`, with one to six decimals or without any."""
    decimals = start + CLOCK_BYTES
    if stop < decimals or not matches(src, start, CLOCK_BYTES):
        return False
    if stop == decimals:
        return True
    count = stop - decimals - 1
    return src[decimals] == POINT and 1 <= count <= MOST_DECIMALS and digits_end(src, decimals + 1, stop) == stop


@part
def is_utc_timestamp(src: Bytes, start: int, stop: int) -> bool:
    """`2025-01-31 12:00:34+00`, with one to six decimals or without any."""
    end = stop - 3
    return (
        end > start
        and src[end] == PLUS
        and src[end + 1] == ZERO
        and src[end + 2] == ZERO
        and is_timestamp(src, start, end)
    )


@part
def parse_int(src: Bytes, start: int, stop: int) -> tuple[bool, int]:
    """A 64-bit integer without superfluous zeros or signs, and whether it is one."""
    negative = stop > start and src[start] == MINUS
    first = start + 1 if negative else start
    count = stop - first
    if count < 1 or count > 19 or digits_end(src, first, stop) != stop:
        return False, 0
    if src[first] == ZERO and (count > 1 or negative):
        return False, 0
    value = 0  # counted downwards: there is one more negative number than there are positive ones
    for i in range(first, first + min(count, 18)):
        value = value * 10 - (signed(src[i]) - ZERO)
    if count == 19:
        digit = signed(src[stop - 1]) - ZERO
        if value < LAST_STEP or (value == LAST_STEP and digit > LAST_DIGIT - (not negative)):
            return False, 0
        value = value * 10 - digit
    return True, value if negative else -value
