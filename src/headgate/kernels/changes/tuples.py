"""A row in a message (TupleData of the protocol): for each column a kind, and for values a length and bytes."""

from __future__ import annotations

from typing import TypeAlias

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Bytes, Tables
from headgate.kernels.changes.text import be16, be32
from headgate.kernels.jit import part

__all__ = ["NO_ROW", "NULL", "TEXT_VALUE", "UNCHANGED", "FoundRows", "find_rows"]

FoundRows: TypeAlias = tuple[int, int, int, bool, int, int]

NULL, UNCHANGED, TEXT_VALUE, BINARY_VALUE = b"nutb"
NEW_ROW, OLD_KEY, OLD_ROW = b"NKO"
NO_ROW = -1


@part
def check_row(src: Bytes, at: int, stop: int, tables: Tables, shape: int, only_key: bool) -> tuple[int, int]:
    """Where the row ends, and how many of its columns an event shows. A negative end is the reason why not.

    All lengths inside a row are checked here and nowhere else.
    """
    if stop - at < 2:
        return -layout.MALFORMED, 0
    if be16(src, at) != tables.shapes[shape, layout.COUNT]:
        return -layout.OTHER_COLUMNS, 0
    at += 2
    shown = 0
    first = tables.shapes[shape, layout.FIRST]
    for column in range(first, first + tables.shapes[shape, layout.COUNT]):
        if at >= stop:
            return -layout.MALFORMED, 0
        kind = src[at]
        at += 1
        if kind in (TEXT_VALUE, BINARY_VALUE):
            if stop - at < 4 or be32(src, at) > stop - at - 4:
                return -layout.MALFORMED, 0
            at += 4 + be32(src, at)
        elif kind != NULL and kind != UNCHANGED:
            return -layout.MALFORMED, 0
        if kind != UNCHANGED and (not only_key or tables.columns[column, layout.IS_KEY] != 0):
            shown += 1
    return at, shown


@part
def find_rows(src: Bytes, start: int, stop: int, operation: int, tables: Tables, shape: int) -> FoundRows:
    """The rows of an Insert, Update or Delete message that is six bytes long at least.

    What is wrong (or DONE); the old row, how many columns it shows, and whether those are the key's only; the new
    row and how many columns it shows.
    """
    at = start + 5
    old, old_shown, only_key = NO_ROW, 0, False
    new, new_shown = NO_ROW, 0
    if operation != layout.INSERT and (src[at] == OLD_KEY or src[at] == OLD_ROW):
        only_key = src[at] == OLD_KEY
        old = at + 1
        at, old_shown = check_row(src, old, stop, tables, shape, only_key)
    if operation != layout.DELETE and 0 <= at < stop and src[at] == NEW_ROW:
        new = at + 1
        at, new_shown = check_row(src, new, stop, tables, shape, False)
    if at < 0:
        return -at, NO_ROW, 0, False, NO_ROW, 0
    if at != stop or (old if operation == layout.DELETE else new) == NO_ROW:
        return layout.MALFORMED, NO_ROW, 0, False, NO_ROW, 0
    return layout.DONE, old, old_shown, only_key, new, new_shown
