"""Debezium's format: values and events, byte for byte as `headgate.wire.envelope.debezium` has them.

It is JSON, so most values are those of `json_form`. Times become numbers since 1970, decimals base64 of their unscaled
two's complement. One change becomes up to three events, and rows hold all columns, whatever the server sent.
"""

from __future__ import annotations

import numpy as np

from headgate.kernels.changes import json_form, layout
from headgate.kernels.changes.events import add_gap, put_piece
from headgate.kernels.changes.json_form import BASE64, CLOSE, COMMA, OPEN, PAD, QUOTE, T, Z
from headgate.kernels.changes.layout import Batch, Bytes, State, Table, Tables
from headgate.kernels.changes.numerals import (
    MINUS,
    POINT,
    ZERO,
    digits_end,
    is_date,
    is_timestamp,
    is_utc_timestamp,
)
from headgate.kernels.changes.text import be32, put_decimal
from headgate.kernels.changes.tuples import NO_ROW, NULL, TEXT_VALUE, UNCHANGED, FoundRows
from headgate.kernels.jit import inlined, part, signed
from headgate.kernels.memory import copy
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US

__all__ = ["GROWTH", "key_moves", "put_event", "put_key", "put_transaction", "put_value"]

# A value may stand in both rows, since the new one borrows from the old; and a byte becomes six at most: \\u001f.
GROWTH = 2 * json_form.GROWTH

COLON = ord(":")
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
TIME_BYTES = 8  # `12:34:56`
MOST_DIGITS = 18  # of a decimal that fits into 64 bits
DECIMALS = 6
TEN = np.uint64(10)

R_LETTER = ord("r")
LETTERS = np.frombuffer(b"cud", dtype=np.uint8)  # by operation
SCALE_WORD, VALUE_WORD = (np.frombuffer(word, dtype=np.uint8) for word in (b'{"scale":', b',"value":'))


@inlined
def two_digits(src: Bytes, at: int) -> int:
    return (signed(src[at]) - ZERO) * 10 + signed(src[at + 1]) - ZERO


@part
def days_of(src: Bytes, at: int) -> int:
    """The days since 1970 of `2025-01-31`, which stands there. Years begin in March here."""
    year = two_digits(src, at) * 100 + two_digits(src, at + 2)
    month, day = two_digits(src, at + 5), two_digits(src, at + 8)
    if month <= 2:
        year -= 1
        month += 12
    cycle = year // 400
    year -= 400 * cycle
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return cycle * 146_097 + year * 365 + year // 4 - year // 100 + of_year - 719_468


@part
def clock_of(src: Bytes, at: int, stop: int) -> int:
    """The microseconds of `12:34:56.789`, which stands there."""
    seconds = (two_digits(src, at) * 60 + two_digits(src, at + 3)) * 60 + two_digits(src, at + 6)
    fraction, missing = 0, DECIMALS
    for i in range(at + TIME_BYTES + 1, stop):
        fraction = fraction * 10 + signed(src[i]) - ZERO
        missing -= 1
    for _ in range(missing):
        fraction *= 10
    return seconds * SECOND_US + fraction


@part
def is_time(src: Bytes, start: int, stop: int) -> bool:
    """`12:34:56`, with one to six decimals or without any."""
    size = stop - start
    if size < TIME_BYTES or size == TIME_BYTES + 1 or size > TIME_BYTES + 1 + DECIMALS:
        return False
    for i in range(TIME_BYTES):
        if i == 2 or i == 5:
            if src[start + i] != COLON:
                return False
        elif digits_end(src, start + i, start + i + 1) == start + i:
            return False
    return size == TIME_BYTES or (
        src[start + TIME_BYTES] == POINT and digits_end(src, start + TIME_BYTES + 1, stop) == stop
    )


@part
def put_signed(out: Bytes, at: int, value: int) -> int:
    if value < 0:
        out[at] = MINUS
        return put_decimal(out, at + 1, -value)
    return put_decimal(out, at, value)


@part
def put_unsigned(out: Bytes, at: int, value: int) -> int:
    """All 64 bits as a number that is not negative."""
    if value >= 0:
        return put_decimal(out, at, value)
    bits = np.uint64(value)
    at = put_decimal(out, at, signed(bits // TEN))
    out[at] = ZERO + signed(bits % TEN)
    return at + 1


@part
def put_unscaled(out: Bytes, at: int, value: int) -> int:
    """Two's complement in as few bytes as hold the sign, in base64."""
    size = 1
    while size < 8 and value >> (8 * size - 1) != (value >> 63):
        size += 1
    out[at] = QUOTE
    at += 1
    for group in range(0, size, 3):
        count = min(3, size - group)
        bits = 0
        for i in range(3):
            place = size - 1 - group - i
            bits = bits << 8 | ((value >> (8 * place)) & 0xFF if i < count else 0)
        for i in range(4):
            out[at + i] = BASE64[(bits >> (18 - 6 * i)) & 63] if i <= count else PAD
        at += 4
    out[at] = QUOTE
    return at + 1


@part
def number_of(src: Bytes, start: int, stop: int) -> tuple[bool, int, int]:
    """Whether it is a decimal of few digits, its digits as a number, and how many stand behind the point."""
    negative = stop > start and src[start] == MINUS
    first = start + 1 if negative else start
    whole = digits_end(src, first, stop)
    end, decimals = whole, 0
    if whole < stop and src[whole] == POINT:
        end = digits_end(src, whole + 1, stop)
        decimals = end - whole - 1
        if decimals == 0:
            return False, 0, 0
    if whole == first or end != stop or whole - first + decimals > MOST_DIGITS:
        return False, 0, 0
    value = 0
    for i in range(first, stop):
        if i != whole:
            value = value * 10 + signed(src[i]) - ZERO
    return True, -value if negative else value, decimals


@part
def put_variable(out: Bytes, at: int, value: int, scale: int) -> int:
    """A decimal with its scale, without zeros at its end."""
    while scale > 0 and value % 10 == 0:
        value //= 10
        scale -= 1
    at = copy(out, at, SCALE_WORD, 0, len(SCALE_WORD))
    at = put_decimal(out, at, scale)
    at = copy(out, at, VALUE_WORD, 0, len(VALUE_WORD))
    at = put_unscaled(out, at, value)
    out[at] = CLOSE
    return at + 1


@part
def put_number(out: Bytes, at: int, rule: int, param: int, src: Bytes, start: int, stop: int) -> int:
    good, value, decimals = number_of(src, start, stop)
    if not good:
        return -1
    if rule == layout.VARIABLE:
        return put_variable(out, at, value, decimals)
    return put_unscaled(out, at, value) if decimals == param else -1


@part
def put_iso(out: Bytes, at: int, src: Bytes, start: int, stop: int, has_date: bool) -> int:
    """What has been checked to be a time, in UTC: byte 10 becomes `T`, and `Z` stands behind it."""
    out[at] = QUOTE
    end = copy(out, at + 1, src, start, stop)
    if has_date and stop - start > 10:
        out[at + 11] = T
    out[end] = Z
    out[end + 1] = QUOTE
    return end + 2


@part
def put_zoned(out: Bytes, at: int, param: int, src: Bytes, start: int, stop: int) -> int:
    """A timestamp of UTC, with zeros up to so many decimals."""
    clock = start + 19
    end = put_iso(out, at, src, start, stop - 3, True) - 2
    decimals = max(0, stop - 3 - clock - 1)
    if param > decimals:
        if decimals == 0:
            out[end] = POINT
            end += 1
        for _ in range(param - decimals):
            out[end] = ZERO
            end += 1
    out[end] = Z
    out[end + 1] = QUOTE
    return end + 2


@part
def put_value(out: Bytes, at: int, rule: int, param: int, src: Bytes, start: int, stop: int) -> int:
    """Write a value by its rule. Where it ends, or -1 if the reference has to read it."""
    if rule < layout.DATE:
        return json_form.put_value(out, at, rule, src, start, stop)
    if rule == layout.DECIMAL or rule == layout.VARIABLE:
        return put_number(out, at, rule, param, src, start, stop)
    if rule == layout.ZONED and is_utc_timestamp(src, start, stop):
        return put_zoned(out, at, param, src, start, stop)
    if (rule == layout.MICROS or rule == layout.MILLIS) and is_timestamp(src, start, stop):
        micros = days_of(src, start) * DAY_US + clock_of(src, start + 11, stop)
        return put_signed(out, at, micros if rule == layout.MICROS else micros // 1000)
    if rule == layout.DAYS and is_date(src, start, stop):
        return put_signed(out, at, days_of(src, start))
    if (rule == layout.TIME_MICROS or rule == layout.TIME_MILLIS) and is_time(src, start, stop):
        micros = clock_of(src, start, stop)
        return put_decimal(out, at, micros if rule == layout.TIME_MICROS else micros // 1000)
    if rule == layout.ISO_DATE and is_date(src, start, stop):
        return put_iso(out, at, src, start, stop, True)
    if rule == layout.ISO_TIME and is_time(src, start, stop):
        return put_iso(out, at, src, start, stop, False)
    if rule == layout.ISO_TIMESTAMP and is_timestamp(src, start, stop):
        return put_iso(out, at, src, start, stop, True)
    return -1


@part
def put_transaction(out: Bytes, state: State, tables: Tables) -> None:
    """What all events of the transaction share: in their source, behind it, and behind their operation."""
    lsn, xid, now = state[layout.TX_LSN], state[layout.TX_XID], state[layout.NOW_US]
    # A schema says that there always is a time.
    micros = now if state[layout.TX_TIME] == 0 else state[layout.TX_TIME] + PG_EPOCH_UNIX_US
    at = put_piece(out, layout.START_OF_TEXT, tables, layout.SOURCE_MILLIS)
    at = put_signed(out, at, micros // 1000)
    at = put_piece(out, at, tables, layout.SEQUENCE_FIRST)
    at = put_piece(out, put_unsigned(out, at, lsn), tables, layout.SEQUENCE_SECOND)
    at = put_piece(out, put_unsigned(out, at, lsn), tables, layout.SOURCE_MICROS)
    at = put_signed(out, at, micros)
    at = put_piece(out, at, tables, layout.SOURCE_NANOS)
    at = put_nanos(out, at, micros)
    state[layout.HEAD_END] = at
    at = put_piece(out, at, tables, layout.TX_ID)
    at = json_form.put_null(out, at) if xid == 0 else put_decimal(out, at, xid)
    at = put_piece(out, at, tables, layout.SOURCE_LSN)
    at = put_piece(out, put_unsigned(out, at, lsn), tables, layout.OP)
    state[layout.ID_END] = at
    at = put_piece(out, at, tables, layout.NOW_MILLIS)
    at = put_piece(out, put_signed(out, at, now // 1000), tables, layout.NOW_MICROS)
    at = put_piece(out, put_signed(out, at, now), tables, layout.NOW_NANOS)
    at = put_nanos(out, at, now)
    state[layout.TAIL_END] = put_piece(out, at, tables, layout.TAIL)


@part
def put_nanos(out: Bytes, at: int, micros: int) -> int:
    """A thousand times the number, which 64 bits might not hold."""
    at = put_signed(out, at, micros)
    if micros != 0:
        for i in range(3):
            out[at + i] = ZERO
        at += 3
    return at


@inlined
def value_at(src: Bytes, at: int) -> tuple[int, int, int]:
    """The kind of a column, and where its value begins and ends."""
    kind = signed(src[at])
    if kind in (NULL, UNCHANGED):
        return kind, at + 1, at + 1
    return kind, at + 5, at + 5 + be32(src, at + 1)


@part
def key_moves(src: Bytes, old: int, only_key: bool, new: int, shape: int, tables: Tables) -> bool:
    """Whether an update changes the primary key, as far as both rows tell."""
    first = tables.shapes[shape, layout.FIRST]
    old += 2
    new += 2
    for column in range(first, first + tables.shapes[shape, layout.COUNT]):
        old_kind, old_start, old = value_at(src, old)
        new_kind, new_start, new = value_at(src, new)
        if tables.columns[column, layout.IS_PRIMARY] == 0 or old_kind == UNCHANGED or new_kind == UNCHANGED:
            continue
        if only_key and tables.columns[column, layout.IS_KEY] == 0:
            continue
        if (old_kind == NULL) != (new_kind == NULL) or old - old_start != new - new_start:
            return True
        for i in range(old - old_start):
            if src[old_start + i] != src[new_start + i]:
                return True
    return False


@part
def put_row(
    out: Bytes, at: int, src: Bytes, row: int, row_key: bool, other: int, other_key: bool, absent: int, shape: int,
    tables: Tables, state: State, gaps: Table,
) -> int:  # fmt: skip
    """All columns of a row. One that was not sent is taken from the other row; what neither has is a constant text."""
    first = tables.shapes[shape, layout.FIRST]
    out[at] = OPEN
    at += 1
    row += 2
    other = other + 2 if other != NO_ROW else NO_ROW
    for column in range(first, first + tables.shapes[shape, layout.COUNT]):
        is_key = tables.columns[column, layout.IS_KEY] != 0
        kind, start, stop = value_at(src, row)
        row = stop
        if row_key and not is_key:
            kind = UNCHANGED
        if other != NO_ROW:
            other_kind, other_start, other = value_at(src, other)
            if kind == UNCHANGED and (is_key or not other_key):
                kind, start, stop = other_kind, other_start, other
        if column != first:
            out[at] = COMMA
            at += 1
        at = copy(out, at, tables.text, tables.columns[column, layout.NAME], tables.columns[column, layout.NAME_END])
        end = -1
        if kind == UNCHANGED:
            end = copy(out, at, tables.text, tables.columns[column, absent], tables.columns[column, absent + 1])
        elif kind == NULL:
            end = json_form.put_null(out, at)
        elif kind == TEXT_VALUE:
            rule, param = tables.columns[column, layout.RULE], tables.columns[column, layout.PARAM]
            end = put_value(out, at, rule, param, src, start, stop)
        if end < 0:
            add_gap(state, gaps, at, column, start, stop)
        else:
            at = end
    out[at] = CLOSE
    return at + 1


@part
def put_event(
    src: Bytes, operation: int, found: FoundRows, shape: int, state: State, tables: Tables, batch: Batch
) -> None:
    """The payload of one event. `operation` is the event's own: a delete shows the old row, an insert the new one."""
    _, old, _, only_key, new, _ = found
    out, at = batch.payload, state[layout.SIZE]
    if state[layout.ROW_ONLY] != 0:
        if operation != layout.DELETE:
            begin = tables.shapes[shape, layout.BEGIN_TEXT]
            at = copy(out, at, tables.text, begin, tables.shapes[shape, layout.BEGIN_TEXT_END])
            at = put_row(out, at, src, new, False, old, only_key, layout.UNAVAILABLE, shape, tables, state, batch.gaps)
            state[layout.SIZE] = put_piece(out, at, tables, layout.TAIL)
        return
    at = copy(
        out, at, tables.text, tables.shapes[shape, layout.BEGIN_TEXT], tables.shapes[shape, layout.BEGIN_TEXT_END]
    )
    if old == NO_ROW or operation == layout.INSERT:
        at = json_form.put_null(out, at)
    else:
        at = put_row(out, at, src, old, only_key, NO_ROW, False, layout.FILL, shape, tables, state, batch.gaps)
    at = put_piece(out, at, tables, layout.AFTER_ROW)
    if operation == layout.DELETE:
        at = json_form.put_null(out, at)
    else:
        at = put_row(out, at, src, new, False, old, only_key, layout.UNAVAILABLE, shape, tables, state, batch.gaps)
    at = copy(out, at, batch.transaction, layout.START_OF_TEXT, state[layout.HEAD_END])
    at = copy(
        out, at, tables.text, tables.shapes[shape, layout.MIDDLE_TEXT], tables.shapes[shape, layout.MIDDLE_TEXT_END]
    )
    at = copy(out, at, batch.transaction, state[layout.HEAD_END], state[layout.ID_END])
    out[at] = R_LETTER if state[layout.FROM_SNAPSHOT] != 0 else LETTERS[operation]
    state[layout.SIZE] = copy(out, at + 1, batch.transaction, state[layout.ID_END], state[layout.TAIL_END])


@part
def put_key(
    out: Bytes, at: int, src: Bytes, row: int, only_key: bool, other: int, other_key: bool, shape: int, tables: Tables,
    state: State, gaps: Table,
) -> int:  # fmt: skip
    """The key of a row, with what stands around it. A value that was not sent is taken from the other row.

    A row that is `only_key` has nothing in its other columns, whatever stands there.
    """
    first = tables.shapes[shape, layout.FIRST]
    at = begin = copy(
        out, at, tables.text, tables.shapes[shape, layout.KEY_TEXT], tables.shapes[shape, layout.KEY_TEXT_END]
    )
    row += 2
    other = other + 2 if other != NO_ROW else NO_ROW
    for column in range(first, first + tables.shapes[shape, layout.COUNT]):
        kind, start, stop = value_at(src, row)
        row = stop
        is_sent = tables.columns[column, layout.IS_KEY] != 0
        if only_key and not is_sent:
            kind = UNCHANGED
        if other != NO_ROW:
            other_kind, other_start, other = value_at(src, other)
            if kind == UNCHANGED and (is_sent or not other_key):
                kind, start, stop = other_kind, other_start, other
        if tables.columns[column, layout.IS_PRIMARY] == 0:
            continue
        if at != begin:
            out[at] = COMMA
            at += 1
        at = copy(out, at, tables.text, tables.columns[column, layout.NAME], tables.columns[column, layout.NAME_END])
        end = -1
        if kind == UNCHANGED:
            lacks = tables.columns[column, layout.UNAVAILABLE]
            end = copy(out, at, tables.text, lacks, tables.columns[column, layout.UNAVAILABLE_END])
        elif kind == NULL:
            end = json_form.put_null(out, at)
        elif kind == TEXT_VALUE:
            rule, param = tables.columns[column, layout.RULE], tables.columns[column, layout.PARAM]
            end = put_value(out, at, rule, param, src, start, stop)
        if end < 0:
            add_gap(state, gaps, at, column, start, stop)
        else:
            at = end
    return put_piece(out, at, tables, layout.KEY_END)
