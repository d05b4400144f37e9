"""The format JSON: values, and what stands around them, byte for byte as `headgate.wire.envelope` has them.

A format is a module with the names that `msgpack_form` and this one share; `events` is written in terms of them.
"""

from __future__ import annotations

import numpy as np

from headgate.kernels.changes import layout
from headgate.kernels.changes.clock import put_iso_time
from headgate.kernels.changes.floats import EXPONENT, GREATEST_POWER, MOST_DIGITS, parse_decimal
from headgate.kernels.changes.layout import Bytes
from headgate.kernels.changes.numerals import POINT, is_date, is_timestamp, is_utc_timestamp, parse_int
from headgate.kernels.changes.text import (
    NIBBLES,
    NOT_ASCII,
    TO_ESCAPE,
    is_utf8,
    look,
    put_decimal,
    put_lsn,
)
from headgate.kernels.jit import inlined, part, signed
from headgate.kernels.memory import copy

__all__ = [
    "GROWTH",
    "begin_entry",
    "close_map",
    "count_entry",
    "open_map",
    "put_int",
    "put_lsn_text",
    "put_null",
    "put_time",
    "put_value",
]

GROWTH = 6  # a value's byte becomes six bytes at most: \\u001f

OPEN, CLOSE, COMMA, QUOTE, BACKSLASH, SPACE, TAB, LINE_FEED, RETURN, PAD, ZERO = b'{},"\\ \t\n\r=0'
X, U, T, Z, T_LETTER, F_LETTER = b"xuTZtf"
NULL_WORD, TRUE_WORD, FALSE_WORD = (np.frombuffer(word, dtype=np.uint8) for word in (b"null", b"true", b"false"))
BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
LOWER_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def _short_escapes() -> Bytes:
    """The letter behind the backslash; 0 where there is none."""
    table = np.zeros(256, dtype=np.uint8)
    for byte, letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
        table[byte] = letter
    return table


SHORT_ESCAPES = _short_escapes()

put_int = put_decimal  # the integers of the envelope itself are not negative
put_lsn_text = put_lsn  # its quotes are in the pieces around it


@inlined
def open_map(out: Bytes, at: int, _size: int) -> int:
    out[at] = OPEN
    return at + 1


@inlined
def begin_entry(out: Bytes, at: int, is_first: bool) -> int:
    if is_first:
        return at
    out[at] = COMMA
    return at + 1


@inlined
def close_map(out: Bytes, at: int) -> int:
    out[at] = CLOSE
    return at + 1


@inlined
def count_entry(_out: Bytes, _begin: int) -> None:
    """No-op: JSON objects carry no entry count, as MessagePack maps do."""


@inlined
def put_null(out: Bytes, at: int) -> int:
    return copy(out, at, NULL_WORD, 0, 4)


@inlined
def put_time(out: Bytes, at: int, time: int) -> int:
    out[at] = QUOTE
    end = put_iso_time(out, at + 1, time)
    out[end] = QUOTE
    return end + 1


@part
def put_escaped(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """The inside of a string, with a backslash before what JSON does not allow there."""
    for i in range(start, stop):
        byte = src[i]
        if byte >= SPACE and byte != QUOTE and byte != BACKSLASH:
            out[at] = byte
            at += 1
            continue
        out[at] = BACKSLASH
        letter = SHORT_ESCAPES[byte]
        out[at + 1] = letter if letter != 0 else U
        at += 2
        if letter == 0:
            out[at] = ZERO
            out[at + 1] = ZERO
            out[at + 2] = LOWER_HEX[byte >> 4]
            out[at + 3] = LOWER_HEX[byte & 15]
            at += 4
    return at


@part
def put_string(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    found = look(src, start, stop)
    if found & NOT_ASCII and not is_utf8(src, start, stop):
        return -1
    out[at] = QUOTE
    end = put_escaped(out, at + 1, src, start, stop) if found & TO_ESCAPE else copy(out, at + 1, src, start, stop)
    out[end] = QUOTE
    return end + 1


@part
def put_json(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """JSON as it is behind a space, but on one line: what breaks it can only stand between tokens."""
    found = look(src, start, stop)
    if found & NOT_ASCII and not is_utf8(src, start, stop):
        return -1
    out[at] = SPACE
    is_plain = True
    if found & TO_ESCAPE:
        for i in range(start, stop):
            is_plain &= src[i] >= SPACE
    if is_plain:
        return copy(out, at + 1, src, start, stop)
    at += 1
    for i in range(start, stop):
        byte = src[i]
        if byte != TAB and byte != LINE_FEED and byte != RETURN:
            out[at] = byte
            at += 1
            continue
        out[at] = TAB
        out[at + 1] = TAB if byte == TAB else SPACE
        at += 2
        if byte != TAB:
            out[at] = SPACE if byte == LINE_FEED else TAB
            at += 1
    return at


@part
def put_float(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """PostgreSQL's digits; with `.0` behind a number that looks like an integer."""
    good, _, q = parse_decimal(src, start, stop)
    if not good or q > GREATEST_POWER - MOST_DIGITS:  # beyond, it might be infinite
        return -1
    end = copy(out, at, src, start, stop)
    for i in range(start, stop):
        if src[i] == POINT or src[i] == EXPONENT:
            return end
    out[end] = POINT
    out[end + 1] = ZERO
    return end + 2


@part
def put_base64(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """bytea: hexadecimal digits behind `\\x`. Six of them, three bytes, become four letters."""
    if stop - start < 2 or (stop - start) & 1 or src[start] != BACKSLASH or src[start + 1] != X:
        return -1
    out[at] = QUOTE
    at += 1
    seen = 0
    for group in range(start + 2, stop, 6):
        count = min(6, stop - group)
        bits = 0
        for i in range(6):
            digit = signed(NIBBLES[src[group + i]]) if i < count else 0
            seen |= digit
            bits = bits << 4 | (digit & 15)
        for i in range(4):
            out[at + i] = BASE64[(bits >> (18 - 6 * i)) & 63] if i <= count // 2 else PAD
        at += 4
    out[at] = QUOTE
    return at + 1 if seen < 16 else -1


@inlined
def put_timestamp(out: Bytes, at: int, src: Bytes, start: int, stop: int, zoned: bool) -> int:
    """What has been checked to be one: byte 10 becomes `T`, and `+00` becomes `Z`."""
    out[at] = QUOTE
    end = copy(out, at + 1, src, start, stop)
    if zoned:
        end -= 2
        out[end - 1] = Z
    out[at + 11] = T
    out[end] = QUOTE
    return end + 1


@inlined
def put_bool(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    if stop - start == 1 and src[start] == T_LETTER:
        return copy(out, at, TRUE_WORD, 0, 4)
    if stop - start == 1 and src[start] == F_LETTER:
        return copy(out, at, FALSE_WORD, 0, 5)
    return -1


@part
def put_value(out: Bytes, at: int, rule: int, src: Bytes, start: int, stop: int) -> int:
    """Write a value by its rule. Where it ends, or -1 if the reference has to read it."""
    if rule == layout.TEXT:
        return put_string(out, at, src, start, stop)
    if rule == layout.INT:
        good, _ = parse_int(src, start, stop)
        return copy(out, at, src, start, stop) if good else -1
    if rule == layout.TIMESTAMPTZ and is_utc_timestamp(src, start, stop):
        return put_timestamp(out, at, src, start, stop, True)
    if rule == layout.TIMESTAMP and is_timestamp(src, start, stop):
        return put_timestamp(out, at, src, start, stop, False)
    if rule == layout.BOOL:
        return put_bool(out, at, src, start, stop)
    if rule == layout.FLOAT:
        return put_float(out, at, src, start, stop)
    if rule == layout.DATE and is_date(src, start, stop):
        return put_string(out, at, src, start, stop)
    if rule == layout.JSON_TEXT:
        return put_json(out, at, src, start, stop)
    if rule == layout.BYTEA:
        return put_base64(out, at, src, start, stop)
    return -1
