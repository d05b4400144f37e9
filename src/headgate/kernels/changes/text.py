"""Bytes in and out: the wire's numbers, copies, digits, UTF-8."""

from __future__ import annotations

import numpy as np

from headgate.kernels.changes.layout import Bytes
from headgate.kernels.jit import inlined, part, signed
from headgate.kernels.memory import read16, read32, read64

__all__ = [
    "be16",
    "be32",
    "be64",
    "is_utf8",
    "le32",
    "look",
    "put_be",
    "put_decimal",
    "put_hex",
    "put_lsn",
]

HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
ZERO, SLASH = b"0/"


def _nibbles() -> Bytes:
    """The value of a hexadecimal digit; 16 for what is none."""
    table = np.full(256, 16, dtype=np.uint8)
    for digit in "0123456789abcdefABCDEF":
        table[ord(digit)] = int(digit, 16)
    return table


NIBBLES = _nibbles()

# What `look` finds.
NOT_ASCII, TO_ESCAPE = 1, 2

EACH = np.uint64(0x0101010101010101)
HIGH_BITS = EACH * np.uint64(0x80)
QUOTES, BACKSLASHES, SPACES = (EACH * np.uint64(byte) for byte in b'"\\ ')
NONE, U8, U16, U32 = (np.uint64(n) for n in (0, 8, 16, 32))


@inlined
def be16(src: Bytes, at: int) -> int:
    return signed(src[at]) << 8 | signed(src[at + 1])


@inlined
def be32(src: Bytes, at: int) -> int:
    high = signed(src[at]) << 24 | signed(src[at + 1]) << 16
    return high | signed(src[at + 2]) << 8 | signed(src[at + 3])


@inlined
def be64(src: Bytes, at: int) -> int:
    """Return eight bytes as a signed big-endian number: what is beyond 2^63 keeps its bits."""
    return be32(src, at) << 32 | be32(src, at + 4)


@inlined
def le32(src: Bytes, at: int) -> int:
    low = signed(src[at]) | signed(src[at + 1]) << 8
    return low | signed(src[at + 2]) << 16 | signed(src[at + 3]) << 24


@inlined
def put_be(out: Bytes, at: int, value: int, width: int) -> int:
    for i in range(width):
        out[at + i] = (value >> (8 * (width - 1 - i))) & 0xFF
    return at + width


@part
def put_hex(out: Bytes, at: int, value: int, width: int) -> int:
    for i in range(width):
        out[at + i] = HEX[(value >> (4 * (width - 1 - i))) & 15]
    return at + width


@part
def put_lsn(out: Bytes, at: int, lsn: int) -> int:
    """`16/B374D848`: both halves without leading zeros."""
    for shift in (32, 0):
        half = (lsn >> shift) & 0xFFFFFFFF
        width = 1
        while half >> (4 * width) != 0:
            width += 1
        at = put_hex(out, at, half, width)
        out[at] = SLASH
        at += 1
    return at - 1  # without the second slash


@part
def put_decimal(out: Bytes, at: int, value: int) -> int:
    """A number that is not negative."""
    width = 1
    rest = value // 10
    while rest > 0:
        width += 1
        rest //= 10
    for i in range(width - 1, -1, -1):
        out[at + i] = ZERO + value % 10
        value //= 10
    return at + width


@inlined
def marks(word: np.uint64) -> np.uint64:
    """Not zero if a byte of the word is a quote, a backslash or less than a space.

    Three times the same: what is less than the subtracted byte borrows into its own high bit, if that was not set.
    """
    quote, backslash = word ^ QUOTES, word ^ BACKSLASHES
    less = (word - SPACES) & ~word
    return (((quote - EACH) & ~quote) | ((backslash - EACH) & ~backslash) | less) & HIGH_BITS


@inlined
def short_word(src: Bytes, start: int, stop: int) -> np.uint64:
    """Less than eight bytes as one word, some of them twice, and spaces."""
    size = stop - start
    if size >= 4:
        return read32(src, start) | read32(src, stop - 4) << U32
    if size >= 2:
        return read16(src, start) | read16(src, stop - 2) << U16 | SPACES << U32
    return SPACES if size == 0 else SPACES << U8 | np.uint64(src[start])


@part
def look(src: Bytes, start: int, stop: int) -> int:
    """What is in a text: NOT_ASCII, TO_ESCAPE (in JSON), both or nothing."""
    if stop - start < 8:
        word = short_word(src, start, stop)
        seen, marked = word, marks(word)
    else:
        word = read64(src, stop - 8)
        seen, marked = word, marks(word)
        for i in range(start, stop - 8, 8):
            word = read64(src, i)
            seen |= word
            marked |= marks(word)
    return (NOT_ASCII if seen & HIGH_BITS != NONE else 0) | (TO_ESCAPE if marked != NONE else 0)


@part
def is_utf8(src: Bytes, start: int, stop: int) -> bool:
    """Whether Python's strict decoder takes it: no surrogates, no overlong forms, nothing beyond U+10FFFF."""
    at = start
    while at < stop:
        lead = src[at]
        if lead < 0x80:
            at += 1
            continue
        size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if lead < 0xC2 or lead > 0xF4 or at + size > stop:
            return False
        second = src[at + 1]
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(2, size):
            if src[at + i] & 0xC0 != 0x80:
                return False
        at += size
    return True
