"""Decimal text -> the nearest 64-bit float, exactly.

The method of Eisel and Lemire ("Number Parsing at a Gigabyte per Second", 2021). A number is `w * 10^q` with a whole
`w` below 2^64, and 10^q is a power of two times 5^q. The product of `w` with the 128 leading bits of 5^q decides the
53 bits of the result and how they are rounded; where it might not, the reference reads the number.
"""

from __future__ import annotations

import numpy as np

from headgate.kernels.changes.layout import Bytes
from headgate.kernels.changes.numerals import MINUS, PLUS, POINT, ZERO, digits_end
from headgate.kernels.jit import inlined, part, signed

__all__ = ["MOST_DIGITS", "nearest", "parse_decimal"]

LEAST_POWER, GREATEST_POWER = -342, 308
MOST_DIGITS = 19  # so many fit into 64 bits; PostgreSQL prints 17 at most
EXPONENT = ord("e")


def _five_to(power: int) -> int:
    """The 128 leading bits of 5^power.

    Small negative powers are rounded up, others down: only for those can the exact product be a whole number.
    """
    if power >= 0:
        value: int = 5**power
        excess = value.bit_length() - 128
        return value >> excess if excess > 0 else value << -excess
    divisor: int = 5**-power
    return (1 << (divisor.bit_length() + 127)) // divisor + (power >= -27)


_POWERS = [_five_to(power) for power in range(LEAST_POWER, GREATEST_POWER + 1)]
FIVE_HIGH = np.array([value >> 64 for value in _POWERS], dtype=np.uint64)
FIVE_LOW = np.array([value & (2**64 - 1) for value in _POWERS], dtype=np.uint64)

# In compiled code an unsigned number stays one only if it meets no other kind.
U0, U1, U3, U10, U32, U52, U63 = (np.uint64(n) for n in (0, 1, 3, 10, 32, 52, 63))
LOW_HALF = np.uint64(2**32 - 1)
ALL = np.uint64(2**64 - 1)
UNUSED = np.uint64(9)  # bits of the upper word that are below the 53 of the result and the two for rounding
UNDECIDED = np.uint64(2**9 - 1)
HIDDEN = np.uint64(2**52)
BIAS = 1023
NO_EXPONENT = 0x7FF


@inlined
def multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The upper and the lower word of the product."""
    a_high, a_low, b_high, b_low = a >> U32, a & LOW_HALF, b >> U32, b & LOW_HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> U32)
    other = a_low * b_high + (middle & LOW_HALF)
    return a_high * b_high + (middle >> U32) + (other >> U32), (other << U32) | (low & LOW_HALF)


@inlined
def product(w: np.uint64, q: int) -> tuple[np.uint64, np.uint64]:
    """The leading 128 bits of `w * 5^q`. The second half of the power is only asked where it can matter."""
    high, low = multiply(w, FIVE_HIGH[q - LEAST_POWER])
    if high & UNDECIDED == UNDECIDED:
        more, _ = multiply(w, FIVE_LOW[q - LEAST_POWER])
        low += more
        if low < more:
            high += U1
    return high, low


@inlined
def leading_zeros(value: np.uint64) -> np.uint64:
    count = U0
    while value >> U63 == U0:
        value <<= U1
        count += U1
    return count


@part
def nearest(w: np.uint64, q: int) -> tuple[bool, np.uint64]:
    """The bits of the float nearest to `w * 10^q`, and whether they are certain."""
    if w == U0:
        return True, U0
    if q < LEAST_POWER or q > GREATEST_POWER:
        return False, U0
    zeros = leading_zeros(w)
    high, low = product(w << zeros, q)
    if low == ALL and (q < -27 or q > 55):
        return False, U0
    shift = (high >> U63) + UNUSED
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + BIAS + signed(high >> U63) - signed(zeros)  # 217706 / 2^16 is log2(10)
    if exponent <= 0:
        return False, U0  # less than the least number of full precision
    if low <= U1 and -4 <= q <= 23 and mantissa & U3 == U1 and mantissa << shift == high:
        mantissa &= ~U1  # just in the middle of two floats: the even one
    mantissa = (mantissa + (mantissa & U1)) >> U1
    if mantissa >= HIDDEN << U1:
        mantissa = HIDDEN
        exponent += 1
    if exponent >= NO_EXPONENT:
        return False, U0
    return True, (mantissa & ~HIDDEN) | np.uint64(exponent) << U52


@inlined
def parse_exponent(src: Bytes, at: int, stop: int) -> tuple[bool, int]:
    """What stands behind the digits: nothing, or `e`, a sign, and one to four digits."""
    if at == stop:
        return True, 0
    if stop - at < 3 or stop - at > 6 or src[at] != EXPONENT or (src[at + 1] != MINUS and src[at + 1] != PLUS):
        return False, 0
    if digits_end(src, at + 2, stop) != stop:
        return False, 0
    value = 0
    for i in range(at + 2, stop):
        value = value * 10 + (signed(src[i]) - ZERO)
    return True, -value if src[at + 1] == MINUS else value


@inlined
def whole_number(src: Bytes, start: int, stop: int) -> tuple[bool, np.uint64]:
    """The digits as one number, without regard to a point among them, and whether they are few enough."""
    value = U0
    count = 0  # without leading zeros; of the digits, since too many of them may come round to zero again
    for i in range(start, stop):
        if src[i] != POINT:
            value = value * U10 + np.uint64(src[i] - ZERO)
            count += int(count > 0 or src[i] != ZERO)
    return count <= MOST_DIGITS, value


@part
def parse_decimal(src: Bytes, start: int, stop: int) -> tuple[bool, np.uint64, int]:
    """`w` and `q` of a number without its sign, and whether it is one."""
    first = start + 1 if stop > start and src[start] == MINUS else start
    point = digits_end(src, first, stop)
    if point == first or (src[first] == ZERO and point - first > 1):
        return False, U0, 0
    end = point
    if point < stop and src[point] == POINT:
        end = digits_end(src, point + 1, stop)
        if end == point + 1:
            return False, U0, 0
    good, exponent = parse_exponent(src, end, stop)
    few, w = whole_number(src, first, end)
    return good and few, w, exponent - max(0, end - point - 1)
