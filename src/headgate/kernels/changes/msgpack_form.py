"""The format MessagePack: values, and what stands around them, byte for byte as `headgate.wire.envelope` has them.

A format is a module with the names that `json_form` and this one share; `events` is written in terms of them.
"""

from __future__ import annotations

from headgate.kernels.changes import layout
from headgate.kernels.changes.clock import ISO_BYTES, put_iso_time
from headgate.kernels.changes.floats import nearest, parse_decimal
from headgate.kernels.changes.layout import Bytes
from headgate.kernels.changes.numerals import MINUS, is_date, is_timestamp, is_utc_timestamp, parse_int
from headgate.kernels.changes.text import NIBBLES, NOT_ASCII, is_utf8, look, put_be, put_lsn
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

GROWTH = 1  # a value's byte becomes one byte at most

NIL, FALSE, TRUE, FLOAT64 = 0xC0, 0xC2, 0xC3, 0xCB
TEXT8, BYTES8, UNSIGNED8, SIGNED8 = 0xD9, 0xC4, 0xCC, 0xD0  # the wider forms follow
SHORT_TEXT, SHORT_MAP, MAP16 = 0xA0, 0x80, 0xDE
SIGN = 0x80
T_LETTER, F_LETTER, BACKSLASH, X, T, Z = b"tf\\xTZ"


@inlined
def open_map(out: Bytes, at: int, size: int) -> int:
    if size < 16:
        out[at] = SHORT_MAP | size
        return at + 1
    out[at] = MAP16
    return put_be(out, at + 1, size, 2)


@inlined
def begin_entry(_out: Bytes, at: int, _is_first: bool) -> int:
    return at


@inlined
def close_map(_out: Bytes, at: int) -> int:
    return at


@inlined
def count_entry(out: Bytes, begin: int) -> None:
    """One entry more in the event's map, which begins there."""
    out[begin] += 1


@inlined
def put_null(out: Bytes, at: int) -> int:
    out[at] = NIL
    return at + 1


@inlined
def put_lsn_text(out: Bytes, at: int, lsn: int) -> int:
    end = put_lsn(out, at + 1, lsn)
    out[at] = SHORT_TEXT | (end - at - 1)
    return end


@inlined
def put_time(out: Bytes, at: int, time: int) -> int:
    out[at] = SHORT_TEXT | ISO_BYTES
    return put_iso_time(out, at + 1, time)


@part
def put_int(out: Bytes, at: int, value: int) -> int:
    """In the shortest form."""
    if -32 <= value < 128:
        out[at] = value & 0xFF
        return at + 1
    bits = value if value >= 0 else ~value
    spare = 0 if value >= 0 else 1  # the sign takes a bit
    wider = int(bits >> (8 - spare) != 0) + int(bits >> (16 - spare) != 0) + int(bits >> (32 - spare) != 0)
    out[at] = (UNSIGNED8 if value >= 0 else SIGNED8) + wider
    return put_be(out, at + 1, value, 1 << wider)


@inlined
def put_size(out: Bytes, at: int, size: int, tag: int) -> int:
    wider = int(size > 0xFF) + int(size > 0xFFFF)
    out[at] = tag + wider
    return put_be(out, at + 1, size, 1 << wider)


@part
def put_text(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    if look(src, start, stop) & NOT_ASCII and not is_utf8(src, start, stop):
        return -1
    if stop - start < 32:
        out[at] = SHORT_TEXT | (stop - start)
        at += 1
    else:
        at = put_size(out, at, stop - start, TEXT8)
    return copy(out, at, src, start, stop)


@part
def put_bytes(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """bytea: hexadecimal digits behind `\\x`."""
    size = (stop - start - 2) // 2
    if size < 0 or stop - start != 2 * size + 2 or src[start] != BACKSLASH or src[start + 1] != X:
        return -1
    at = put_size(out, at, size, BYTES8)
    seen = 0
    for i in range(size):
        high, low = NIBBLES[src[start + 2 * i + 2]], NIBBLES[src[start + 2 * i + 3]]
        seen |= high | low
        out[at + i] = high << 4 | low
    return at + size if seen < 16 else -1


@part
def put_float(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    good, w, q = parse_decimal(src, start, stop)
    certain, bits = nearest(w, q)
    if not good or not certain:
        return -1
    out[at] = FLOAT64
    end = put_be(out, at + 1, signed(bits), 8)
    if src[start] == MINUS:
        out[at + 1] |= SIGN
    return end


@inlined
def put_timestamp(out: Bytes, at: int, src: Bytes, start: int, stop: int, zoned: bool) -> int:
    """What has been checked to be one: byte 10 becomes `T`, and `+00` becomes `Z`."""
    end = copy(out, at + 1, src, start, stop)
    if zoned:
        end -= 2
        out[end - 1] = Z
    out[at] = SHORT_TEXT | (end - at - 1)
    out[at + 11] = T
    return end


@part
def put_value(out: Bytes, at: int, rule: int, src: Bytes, start: int, stop: int) -> int:
    """Write a value by its rule. Where it ends, or -1 if the reference has to read it."""
    if rule == layout.TEXT or rule == layout.JSON_TEXT:
        return put_text(out, at, src, start, stop)
    if rule == layout.INT:
        good, value = parse_int(src, start, stop)
        return put_int(out, at, value) if good else -1
    if rule == layout.TIMESTAMPTZ and is_utc_timestamp(src, start, stop):
        return put_timestamp(out, at, src, start, stop, True)
    if rule == layout.TIMESTAMP and is_timestamp(src, start, stop):
        return put_timestamp(out, at, src, start, stop, False)
    if rule == layout.BOOL and stop - start == 1 and (src[start] == T_LETTER or src[start] == F_LETTER):
        out[at] = TRUE if src[start] == T_LETTER else FALSE
        return at + 1
    if rule == layout.FLOAT:
        return put_float(out, at, src, start, stop)
    if rule == layout.DATE and is_date(src, start, stop):
        return put_text(out, at, src, start, stop)
    if rule == layout.BYTEA:
        return put_bytes(out, at, src, start, stop)
    return -1
