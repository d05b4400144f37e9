"""Bytes in and out: numbers of the wire, copies, digits, patterns, UTF-8."""

from __future__ import annotations

import numpy as np

from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.memory import load_word, store_word
from headgate.sources.postgres_cdc.decode.layout import Bytes

HIGH_BITS = np.uint64(0x8080808080808080)
HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)


@leaf
def be16(src: Bytes, at: int) -> int:
    return np.int64(src[at]) << 8 | np.int64(src[at + 1])


@leaf
def be32(src: Bytes, at: int) -> int:
    return be16(src, at) << 16 | be16(src, at + 2)


@leaf
def be64(src: Bytes, at: int) -> int:
    """As a signed number: an LSN beyond 2^63 keeps its bits."""
    return be32(src, at) << 32 | be32(src, at + 4)


@leaf
def le32(src: Bytes, at: int) -> int:
    low = np.int64(src[at]) | np.int64(src[at + 1]) << 8
    return low | np.int64(src[at + 2]) << 16 | np.int64(src[at + 3]) << 24


@leaf
def put_be(out: Bytes, at: int, value: int, width: int) -> int:
    for i in range(width):
        out[at + i] = (value >> (8 * (width - 1 - i))) & 0xFF
    return at + width


@part
def copy(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    size = stop - start
    if size < 8:
        for i in range(size):
            out[at + i] = src[start + i]
        return at + size
    for i in range(0, size - 8, 8):
        store_word(out, at + i, load_word(src, start + i))
    store_word(out, at + size - 8, load_word(src, stop - 8))
    return at + size


@part
def put_hex(out: Bytes, at: int, value: int, width: int) -> int:
    for i in range(width):
        out[at + i] = HEX[(value >> (4 * (width - 1 - i))) & 15]
    return at + width


@part
def hex_width(value: int) -> int:
    """How many digits a 32-bit number has."""
    width = 1
    while width < 8 and value >> (4 * width) != 0:
        width += 1
    return width


@part
def put_lsn(out: Bytes, at: int, lsn: int) -> int:
    """`16/B374D848`, as format_lsn of the reference writes it."""
    high = (lsn >> 32) & 0xFFFFFFFF
    low = lsn & 0xFFFFFFFF
    at = put_hex(out, at, high, hex_width(high))
    out[at] = 47
    return put_hex(out, at + 1, low, hex_width(low))


@part
def put_decimal(out: Bytes, at: int, value: int) -> int:
    """A number that is not negative, in decimal digits."""
    width = 1
    rest = value // 10
    while rest > 0:
        width += 1
        rest //= 10
    for i in range(width - 1, -1, -1):
        out[at + i] = 48 + value % 10
        value //= 10
    return at + width


@part
def copy_text(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> bool:
    """Copy text, and tell whether it is UTF-8."""
    size = stop - start
    seen = np.uint64(0)
    if size < 8:
        for i in range(size):
            out[at + i] = src[start + i]
            seen |= np.uint64(src[start + i])
    else:
        for i in range(0, size - 8, 8):
            word = load_word(src, start + i)
            seen |= word
            store_word(out, at + i, word)
        word = load_word(src, stop - 8)
        seen |= word
        store_word(out, at + size - 8, word)
    return seen & HIGH_BITS == np.uint64(0) or is_utf8(src, start, stop)

@part
def is_utf8(src: Bytes, start: int, stop: int) -> bool:
    """Whether Python's strict decoder accepts the bytes: no surrogates, no overlong forms, nothing past U+10FFFF."""
    at = start
    while at < stop:
        lead = src[at]
        if lead < 0x80:
            at += 1
            continue
        low, high = 0x80, 0xBF  # what the second byte may be
        if 0xC2 <= lead <= 0xDF:
            size = 2
        elif 0xE0 <= lead <= 0xEF:
            size = 3
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            size = 4
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if at + size > stop or src[at + 1] < low or src[at + 1] > high:
            return False
        for i in range(2, size):
            if src[at + i] & 0xC0 != 0x80:
                return False
        at += size
    return True
