"""Decimal text -> the nearest 64-bit float, exactly.

The method is that of Eisel and Lemire ("Number Parsing at a Gigabyte per Second", 2021): a number is `w * 10^q` with
a whole `w` below 2^64, and 10^q is 5^q times a power of two. One multiplication of `w` by the 128 leading bits of 5^q
nearly always decides the 53 bits of the result and how to round; where it does not, the reference reads the number.
"""

from __future__ import annotations

import numpy as np

from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.layout import Bytes
from headgate.sources.postgres_cdc.decode.numerals import MINUS, NINE, POINT, ZERO

LEAST_POWER, GREATEST_POWER = -342, 308
E_SMALL, PLUS = ord("e"), ord("+")
MAX_DIGITS = 19  # so many always fit into 64 bits; PostgreSQL prints 17 at most


def _five_to(power: int) -> int:
    """The 128 leading bits of 5^power.

    Small negative powers are rounded up, so that a product which ought to be a whole number is recognised as such.
    """
    if power >= 0:
        value = 5**power
        excess = value.bit_length() - 128
        return value >> excess if excess > 0 else value << -excess
    divisor = 5**-power
    return (1 << (divisor.bit_length() + 127)) // divisor + (power >= -27)


_POWERS = [_five_to(power) for power in range(LEAST_POWER, GREATEST_POWER + 1)]
FIVE_HIGH = np.array([value >> 64 for value in _POWERS], dtype=np.uint64)
FIVE_LOW = np.array([value & (2**64 - 1) for value in _POWERS], dtype=np.uint64)

U0, U1, U3, U63 = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(63)
U32 = np.uint64(32)
HALF = np.uint64(0xFFFFFFFF)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
UNDECIDED = np.uint64(0x1FF)  # the bits of the upper word below those that are needed
HIDDEN = np.uint64(1 << 52)
BITS_FREE = np.uint64(9)  # 64 - 52 - 3


@leaf
def multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The upper and the lower word of a product."""
    a_high, a_low, b_high, b_low = a >> U32, a & HALF, b >> U32, b & HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> U32)
    other = a_low * b_high + (middle & HALF)
    return a_high * b_high + (middle >> U32) + (other >> U32), (other << U32) | (low & HALF)


@part
def leading_zeros(value: np.uint64) -> np.uint64:
    count = U0
    for shift in (32, 16, 8, 4, 2, 1):
        if value >> np.uint64(64 - shift) == U0:
            count += np.uint64(shift)
            value <<= np.uint64(shift)
    return count


@part
def nearest(w: np.uint64, q: int) -> tuple[bool, np.uint64]:
    """The bits of the float nearest to `w * 10^q`; False where the reference must decide."""
    if w == U0:
        return True, U0
    if q < LEAST_POWER or q > GREATEST_POWER:
        return False, U0
    zeros = leading_zeros(w)
    w <<= zeros
    high, low = multiply(w, FIVE_HIGH[q - LEAST_POWER])
    if high & UNDECIDED == UNDECIDED:
        more, _ = multiply(w, FIVE_LOW[q - LEAST_POWER])
        low += more
        if low < more:
            high += U1
    if low == ALL and (q < -27 or q > 55):
        return False, U0
    upper = high >> U63
    shift = upper + BITS_FREE
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + 1023 + np.int64(upper) - np.int64(zeros)
    if exponent <= 0:
        return False, U0  # a subnormal number
    # Exactly in the middle between two floats: to the even one.
    if low <= U1 and -4 <= q <= 23 and mantissa & U3 == U1 and mantissa << shift == high:
        mantissa &= ~U1
    mantissa = (mantissa + (mantissa & U1)) >> U1
    if mantissa >= HIDDEN << U1:
        mantissa = HIDDEN
        exponent += 1
    if exponent >= 0x7FF:
        return False, U0
    return True, (mantissa & ~HIDDEN) | np.uint64(exponent) << np.uint64(52)


@part
def digits_end(src: Bytes, at: int, stop: int) -> int:
    while at < stop and ZERO <= src[at] <= NINE:
        at += 1
    return at


@part
def parse_exponent(src: Bytes, at: int, stop: int) -> tuple[bool, int]:
    """What stands behind the digits: nothing, or `e`, a sign, and digits up to the end."""
    if at == stop:
        return True, 0
    if stop - at < 3 or stop - at > 6 or src[at] != E_SMALL or (src[at + 1] != MINUS and src[at + 1] != PLUS):
        return False, 0
    value = 0
    for i in range(at + 2, stop):
        if src[i] < ZERO or src[i] > NINE:
            return False, 0
        value = value * 10 + np.int64(src[i]) - ZERO
    return True, -value if src[at + 1] == MINUS else value


@part
def parse_decimal(src: Bytes, start: int, stop: int) -> tuple[bool, bool, np.uint64, int]:
    """Whether it is a number the reference would take (if this can be told here), its sign, `w` and `q`."""
    negative = stop > start and src[start] == MINUS
    first = start + 1 if negative else start
    point = digits_end(src, first, stop)
    if point == first or (src[first] == ZERO and point - first > 1):
        return False, False, U0, 0
    end = point
    if point < stop and src[point] == POINT:
        end = digits_end(src, point + 1, stop)
        if end == point + 1:
            return False, False, U0, 0
    good, q = parse_exponent(src, end, stop)
    if not good:
        return False, False, U0, 0
    w = U0
    count = 0  # significant digits
    for i in range(first, end):
        if src[i] != POINT:
            w = w * np.uint64(10) + np.uint64(src[i] - ZERO)
            count += count > 0 or src[i] != ZERO
    if count > MAX_DIGITS:
        return False, False, U0, 0
    return True, negative, w, q - max(0, end - point - 1)
