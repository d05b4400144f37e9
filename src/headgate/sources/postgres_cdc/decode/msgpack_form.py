"""Events as MessagePack. The rules are those of `headgate.wire.envelope`; every byte is the same as there."""

from __future__ import annotations

import numpy as np

from headgate.sources.postgres_cdc.decode import layout as l
from headgate.sources.postgres_cdc.decode.clock import ISO_BYTES, put_iso_time
from headgate.sources.postgres_cdc.decode.floats import nearest, parse_decimal
from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.layout import Batch, Bytes, Numbers, State, Tables
from headgate.sources.postgres_cdc.decode.numerals import ends_in_utc, is_date, is_timestamp, parse_int
from headgate.sources.postgres_cdc.decode.text import be16, be32, copy, copy_text, put_be, put_lsn
from headgate.sources.postgres_cdc.decode.tuples import NULL, TEXT_VALUE, UNCHANGED, add_gap

NIL, FALSE, TRUE, FLOAT64 = 0xC0, 0xC2, 0xC3, 0xCB
NOT_FINITE = {}

_NIBBLES = np.full(256, 16, dtype=np.uint8)
for _digit in "0123456789abcdefABCDEF":
    _NIBBLES[ord(_digit)] = int(_digit, 16)
NIBBLES = _NIBBLES


@part
def put_int(out: Bytes, at: int, value: int) -> int:
    if -32 <= value < 128:
        return put_be(out, at, value, 1)
    if value >= 0:
        if value <= 0xFF:
            tag, width = 0xCC, 1
        elif value <= 0xFFFF:
            tag, width = 0xCD, 2
        elif value <= 0xFFFFFFFF:
            tag, width = 0xCE, 4
        else:
            tag, width = 0xCF, 8
    elif value >= -0x80:
        tag, width = 0xD0, 1
    elif value >= -0x8000:
        tag, width = 0xD1, 2
    elif value >= -0x80000000:
        tag, width = 0xD2, 4
    else:
        tag, width = 0xD3, 8
    out[at] = tag
    return put_be(out, at + 1, value, width)


@part
def put_size(out: Bytes, at: int, size: int, tag: int) -> int:
    """A length of 8, 16 or 32 bits behind its tag; the wider forms have the next two tags."""
    if size <= 0xFF:
        out[at] = tag
        return put_be(out, at + 1, size, 1)
    if size <= 0xFFFF:
        out[at] = tag + 1
        return put_be(out, at + 1, size, 2)
    out[at] = tag + 2
    return put_be(out, at + 1, size, 4)


@leaf
def put_text_size(out: Bytes, at: int, size: int) -> int:
    if size < 32:
        out[at] = 0xA0 | size
        return at + 1
    return put_size(out, at, size, 0xD9)


@part
def put_text(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    body = put_text_size(out, at, stop - start)
    return body + stop - start if copy_text(out, body, src, start, stop) else -1


@part
def put_bytes(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """bytea: hexadecimal behind `\\x`."""
    size = stop - start - 2
    if size < 0 or size & 1 or src[start] != 92 or src[start + 1] != 120:
        return -1
    at = put_size(out, at, size >> 1, 0xC4)
    seen = np.uint8(0)
    for i in range(size >> 1):
        high, low = NIBBLES[src[start + 2 + 2 * i]], NIBBLES[src[start + 3 + 2 * i]]
        seen |= high | low
        out[at + i] = (high << 4) | (low & 15)
    return at + (size >> 1) if seen < 16 else -1


@part
def put_float(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    good, negative, w, q = parse_decimal(src, start, stop)
    if not good:
        return -1
    good, bits = nearest(w, q)
    if not good:
        return -1
    out[at] = FLOAT64
    put_be(out, at + 1, np.int64(bits), 8)
    if negative:
        out[at + 1] |= 0x80
    return at + 9


@part
def put_timestamp(out: Bytes, at: int, src: Bytes, start: int, stop: int, zoned: bool) -> int:
    end = stop - 3 if zoned else stop
    if (zoned and not ends_in_utc(src, start, stop)) or not is_timestamp(src, start, end):
        return -1
    out[at] = 0xA0 | (end - start + zoned)
    after = copy(out, at + 1, src, start, end)
    out[at + 11] = 84  # T
    if zoned:
        out[after] = 90  # Z
        after += 1
    return after


@part
def put_value(out: Bytes, at: int, rule: int, src: Bytes, start: int, stop: int) -> int:
    """Write one value by its rule; where it ends, or -1 if the reference has to read it."""
    if rule == l.TEXT or rule == l.JSON:
        return put_text(out, at, src, start, stop)
    if rule == l.INT:
        good, value = parse_int(src, start, stop)
        return put_int(out, at, value) if good else -1
    if rule == l.TIMESTAMPTZ or rule == l.TIMESTAMP:
        return put_timestamp(out, at, src, start, stop, rule == l.TIMESTAMPTZ)
    if rule == l.BOOL:
        if stop - start != 1 or (src[start] != 116 and src[start] != 102):
            return -1
        out[at] = TRUE if src[start] == 116 else FALSE
        return at + 1
    if rule == l.FLOAT:
        return put_float(out, at, src, start, stop)
    if rule == l.DATE:
        return put_text(out, at, src, start, stop) if is_date(src, start, stop) else -1
    if rule == l.BYTEA:
        return put_bytes(out, at, src, start, stop)
    return -1


@part
def put_map(
    out: Bytes,
    at: int,
    src: Bytes,
    place: int,
    sent: int,
    only_key: bool,
    shape: int,
    tables: Tables,
    state: State,
    gaps: Numbers,
) -> int:
    """A tuple as a map; `sent` is the number of entries that check_tuple counted."""
    if sent < 16:
        out[at] = 0x80 | sent
        at += 1
    else:
        out[at] = 0xDE
        at = put_be(out, at + 1, sent, 2)
    first = tables.shapes[shape, l.FIRST]
    place += 2
    for column in range(first, first + tables.shapes[shape, l.COUNT]):
        kind = src[place]
        start = stop = place + 1
        if kind != NULL and kind != UNCHANGED:
            start = place + 5
            stop = start + be32(src, place + 1)
        place = stop
        if kind == UNCHANGED or (only_key and tables.columns[column, l.IS_KEY] == 0):
            continue
        at = copy(out, at, tables.text, tables.columns[column, l.NAME], tables.columns[column, l.NAME_END])
        if kind == NULL:
            out[at] = NIL
            at += 1
            continue
        end = put_value(out, at, tables.columns[column, l.RULE], src, start, stop) if kind == TEXT_VALUE else -1
        if end < 0:
            add_gap(state, gaps, at, column, start, stop)
        else:
            at = end
    return at


@leaf
def put_piece(out: Bytes, at: int, tables: Tables, piece: int) -> int:
    return copy(out, at, tables.text, tables.pieces[piece], tables.pieces[piece + 1])


@leaf
def put_short_lsn(out: Bytes, at: int, lsn: int) -> int:
    end = put_lsn(out, at + 1, lsn)
    out[at] = 0xA0 | (end - at - 1)
    return end


@part
def put_head(out: Bytes, tables: Tables, lsn: int, time: int, xid: int) -> int:
    """What is the same for all events of a transaction, up to the ordinal."""
    at = put_short_lsn(out, put_piece(out, 0, tables, l.COMMIT_LSN), lsn)
    at = put_piece(out, at, tables, l.COMMIT_TIME)
    if time == 0:
        out[at] = NIL
        at += 1
    else:
        out[at] = 0xA0 | ISO_BYTES
        at = put_iso_time(out, at + 1, time)
    at = put_piece(out, at, tables, l.XID)
    if xid == 0:
        out[at] = NIL
        at += 1
    else:
        at = put_int(out, at, xid)
    at = put_short_lsn(out, put_piece(out, at, tables, l.LSN), lsn)
    return put_piece(out, at, tables, l.ORDINAL)
