"""Shares of a range: which of several tasks sends a change, so that each sends its own in their order.

By table, or by key where a table has one: the columns of its replica identity. A table whose identity is nothing, or
the whole row, belongs to one share. Logical messages belong to the first.

Some transactions are about more than one share: a description comes before all rows of its table; by key, also a
Truncate, and an Update that gives its row another key. A range with one of those is not shared: `needs_one_task`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from numba import types

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Bytes, State, Tables
from headgate.kernels.changes.text import be32, le32
from headgate.kernels.changes.tuples import BINARY_VALUE, OLD_KEY, TEXT_VALUE
from headgate.kernels.jit import BYTES_READ, compile_kernel, inlined, part, signed

__all__ = ["ALL", "Share", "has_rows_of", "is_first", "is_of_key", "is_of_table", "needs_one_task"]

UPDATE, TRUNCATE, SCHEMA = b"UTH"
OLD_ROW_AT = 5  # in an Update: behind its kind and the relation's id

# FNV-1a, with 64 bits.
OFFSET_BASIS = -3750763034362895579
PRIME = 1099511628211
POSITIVE = 2**63 - 1

FindBarrier: TypeAlias = Callable[[Bytes, int], int]


class Share(NamedTuple):
    """Which part of a range's changes: number `number` of so many shares, `by_key` or by table."""

    number: int = 0
    shares: int = 1
    by_key: bool = False


ALL = Share()


@inlined
def mixed(hashed: int, byte: int) -> int:
    return (hashed ^ byte) * PRIME


@part
def hash_of_table(relation_id: int) -> int:
    hashed = OFFSET_BASIS
    for shift in range(0, 32, 8):
        hashed = mixed(hashed, relation_id >> shift & 0xFF)
    return hashed


@part
def is_at(hashed: int, state: State) -> bool:
    """Whether a hash falls into the share. Its upper half is mixed in: the lower bits of FNV alone are uneven."""
    return bool(((hashed ^ hashed >> 32) & POSITIVE) % state[layout.SHARES] == state[layout.SHARE])


@inlined
def has_rows_of(state: State) -> bool:
    """Whether only a share of the rows is wanted."""
    return bool(state[layout.SHARES] > 1)


@inlined
def is_first(state: State) -> bool:
    return bool(state[layout.SHARE] == 0)


@part
def is_by_key(state: State, tables: Tables, shape: int) -> bool:
    keys = tables.shapes[shape, layout.KEY_COUNT]
    return bool(state[layout.BY_KEY] != 0 and 0 < keys < tables.shapes[shape, layout.COUNT])


@part
def is_of_table(relation_id: int, state: State) -> bool:
    """Whether the share has what is about a whole table."""
    return is_at(hash_of_table(relation_id), state)


@part
def is_of_key(src: Bytes, row: int, relation_id: int, state: State, tables: Tables, shape: int) -> bool:
    """Whether the share has a change with this row, which has been checked."""
    hashed = hash_of_table(relation_id)
    if not is_by_key(state, tables, shape):
        return is_at(hashed, state)
    at = row + 2
    first = tables.shapes[shape, layout.FIRST]
    for column in range(first, first + tables.shapes[shape, layout.COUNT]):
        kind = src[at]
        at += 1
        size = 0
        if kind in (TEXT_VALUE, BINARY_VALUE):
            size = be32(src, at)
            at += 4
        if tables.columns[column, layout.IS_KEY] != 0:
            hashed = mixed(hashed, signed(kind))
            for place in range(at, at + size):
                hashed = mixed(hashed, signed(src[place]))
        at += size
    return is_at(hashed, state)


def _barrier(sources: int) -> FindBarrier:
    def kernel(src: Bytes, by_key: int) -> int:
        if sources < 0:
            return -1
        at, end = 0, len(src)
        while at + 4 < end:
            start = at + 4
            size = le32(src, at)
            if size == 0 or size > end - start:
                break  # the walk says what is wrong with it
            kind = src[start]
            if kind == SCHEMA:
                return start
            if by_key != 0 and kind == TRUNCATE:
                return start
            if by_key != 0 and kind == UPDATE and size > OLD_ROW_AT and src[start + OLD_ROW_AT] == OLD_KEY:
                return start
            at = start + size
        return -1

    return kernel


@cache
def _barrier_kernel() -> FindBarrier:
    """The kernel that finds the first message which is about more than one share; it returns -1 if there is none."""
    return compile_kernel(types.int64(BYTES_READ, types.int64), _barrier)


def needs_one_task(src: Bytes, *, by_key: bool) -> bool:
    """Whether whole transactions in a buffer must be sent by one task."""
    return _barrier_kernel()(src, int(by_key)) >= 0
