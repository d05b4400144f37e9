"""The keys of messages: the primary key of each changed row, as Debezium's connector writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numba import types

from headgate.kernels.changes import debezium_form, layout
from headgate.kernels.changes.changes import change_of
from headgate.kernels.changes.columns import bytes_column
from headgate.kernels.changes.debezium_tables import DebeziumTables
from headgate.kernels.changes.events import add_gap
from headgate.kernels.changes.gaps import Filled, Refused, RowSource, fill_gaps, new_state
from headgate.kernels.changes.layout import Bytes, Numbers, State, Table, Tables
from headgate.kernels.changes.shapes import Shapes
from headgate.kernels.changes.text import le32
from headgate.kernels.changes.tuples import NO_ROW, find_rows
from headgate.kernels.jit import BYTES, BYTES_READ, NUMBERS, TABLE, compile_kernel, part

__all__ = ["MessageKeys", "key_kernel", "with_keys"]

KeyKernel: TypeAlias = Callable[[Bytes, State, Tables, Table, Bytes, Numbers, Table], int]

NO_KEY = -1
_FIRST_BYTES = 1 << 18
_FIRST_GAPS = 1 << 10


@part
def add_key(
    src: Bytes, start: int, shape: int, operation: int, state: State, tables: Tables, out: Bytes, gaps: Table
) -> int:
    """The key of one message, which the walk has found good. DONE, FULL if it has no room, or NO_KEY."""
    if tables.shapes[shape, layout.KEY_TEXT] == tables.shapes[shape, layout.KEY_TEXT_END]:
        return NO_KEY
    stop = start + le32(src, start - 4)
    _, old, _, old_key, new, _ = find_rows(src, start, stop, change_of(src[start]), tables, shape)
    is_delete = operation == layout.DELETE  # also of one that stands for half of an update, as an insert may
    row = old if is_delete else new
    other = NO_ROW if is_delete else old
    need = tables.shapes[shape, layout.FIXED] + debezium_form.GROWTH * (stop - start)
    is_whole = need > state[layout.MOST_BYTES]
    state[layout.NEED_BYTES] = 0 if is_whole else need
    state[layout.NEED_GAPS] = tables.shapes[shape, layout.COUNT] + layout.GAPS_OF_WHOLE
    if (
        state[layout.NEED_BYTES] > len(out) - state[layout.SIZE]
        or state[layout.NEED_GAPS] > len(gaps) - state[layout.GAPS]
    ):
        return layout.FULL
    at = state[layout.SIZE]
    if is_whole:
        add_gap(state, gaps, at, layout.WHOLE_EVENT, start, stop)
    else:
        state[layout.SIZE] = debezium_form.put_key(
            out, at, src, row, is_delete and old_key, other, old_key, shape, tables, state, gaps
        )
    return layout.DONE


def _kernel(sources: int) -> KeyKernel:
    def kernel(src: Bytes, state: State, tables: Tables, rows: Table, out: Bytes, ends: Numbers, gaps: Table) -> int:
        state[layout.COMPILED_FROM] = sources
        while state[layout.ROWS] < len(rows):
            row = state[layout.ROWS]
            operation, reason = rows[row, layout.OPERATION], NO_KEY
            if operation < layout.ROW_OPERATIONS:
                start, shape = rows[row, layout.SOURCE], rows[row, layout.OF_SHAPE]
                reason = add_key(src, start, shape, operation, state, tables, out, gaps)
            if reason == layout.FULL:
                return reason
            ends[row] = state[layout.SIZE] if reason == layout.DONE else NO_KEY
            state[layout.ROWS] = row + 1
        return layout.DONE

    return kernel


@cache
def key_kernel() -> KeyKernel:
    """Notes where each row's key ends in `out`, or NO_KEY. Goes on at state[ROWS]; FULL if it needs more room."""
    signature = types.int64(BYTES_READ, NUMBERS, layout.TABLES_TYPE, TABLE, BYTES, NUMBERS, TABLE)
    return compile_kernel(signature, _kernel)


class MessageKeys:
    """Makes the column of keys. Keeps its scratch memory from batch to batch."""

    def __init__(self, form: DebeziumTables, shapes: Shapes) -> None:
        self._form = form
        self._shapes = shapes
        self._kernel = key_kernel()
        self._text = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self._gaps = np.empty((_FIRST_GAPS, layout.GAP_FIELDS), dtype=np.int64)

    def column(self, source: RowSource, refused: Refused | None) -> pa.Array:
        """Return the key of every changed row; NULL where its table has none. Bad ones go into `refused`."""
        ends = np.empty(len(source.rows), dtype=np.int64)
        state = self._run(source, ends)
        is_there = ends != NO_KEY
        keys = Filled(self._text[: state[layout.SIZE]].tobytes(), np.maximum.accumulate(np.maximum(ends, 0)))

        def whole(row: int) -> bytes:
            key = source.reference.key(source.event(row))
            assert key is not None  # else the kernel had left no gap
            return key

        filled = fill_gaps(keys, self._gaps[: state[layout.GAPS]], source, self._form, whole, refused)
        return bytes_column(pa.binary(), filled.text, filled.ends, is_there)

    def _run(self, source: RowSource, ends: Numbers) -> State:
        state = new_state()
        tables = self._shapes.tables(layout.DEBEZIUM)
        while self._kernel(source.src, state, tables, source.rows, self._text, ends, self._gaps) == layout.FULL:
            size, gaps = len(self._text) + int(state[layout.NEED_BYTES]), len(self._gaps) + int(state[layout.NEED_GAPS])
            self._text = np.resize(self._text, 2 * size)
            self._gaps = np.resize(self._gaps, (2 * gaps, layout.GAP_FIELDS))
        return state


def with_keys(keys: pa.Array, given: Mapping[int, bytes]) -> pa.Array:
    """Return the keys with these of logical messages, which are rare, in their rows."""
    if not given:
        return keys
    rows = keys.to_pylist()
    for row, key in given.items():
        rows[row] = key
    return pa.array(rows, pa.binary())
