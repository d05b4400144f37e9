"""The columns of a row in a message (TupleData of the protocol): kind, and for values a length and bytes."""

from __future__ import annotations

from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.layout import (
    COUNT,
    FIRST,
    GAP_AT,
    GAP_COLUMN,
    GAP_ROW,
    GAP_START,
    GAP_STOP,
    GAPS,
    IS_KEY,
    MALFORMED,
    OTHER_COLUMNS,
    OWED,
    ROWS,
    Batch,
    Bytes,
    Numbers,
    State,
    Tables,
)
from headgate.sources.postgres_cdc.decode.text import be16, be32

NULL, UNCHANGED, TEXT_VALUE, BINARY_VALUE = b"nutb"


@part
def check_tuple(src: Bytes, at: int, stop: int, tables: Tables, shape: int, only_key: bool) -> tuple[int, int]:
    """Where the tuple ends, and how many of its columns become entries. A negative end is a reason, negated.

    This is the only place where lengths inside a tuple are checked; whoever walks it again may rely on them.
    """
    if stop - at < 2:
        return -MALFORMED, 0
    count = be16(src, at)
    if count != tables.shapes[shape, COUNT]:
        return -OTHER_COLUMNS, 0
    first = tables.shapes[shape, FIRST]
    at += 2
    sent = 0
    for column in range(first, first + count):
        if at >= stop:
            return -MALFORMED, 0
        kind = src[at]
        at += 1
        if kind == TEXT_VALUE or kind == BINARY_VALUE:
            if stop - at < 4 or be32(src, at) > stop - at - 4:
                return -MALFORMED, 0
            at += 4 + be32(src, at)
        elif kind != NULL and kind != UNCHANGED:
            return -MALFORMED, 0
        if kind != UNCHANGED and (not only_key or tables.columns[column, IS_KEY] != 0):
            sent += 1
    return at, sent


@leaf
def add_gap(state: State, gaps: Numbers, at: int, column: int, start: int, stop: int) -> None:
    """Leave a value to the reference. There is room: it was seen to before the row began."""
    number = state[GAPS]
    gaps[number, GAP_AT] = at
    gaps[number, GAP_ROW] = state[ROWS]
    gaps[number, GAP_COLUMN] = column
    gaps[number, GAP_START] = start
    gaps[number, GAP_STOP] = stop
    state[GAPS] = number + 1
    state[OWED] += stop - start
