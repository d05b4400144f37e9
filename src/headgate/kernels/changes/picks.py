"""Single columns of the changed rows, as the text PostgreSQL sent: what routing looks at, without decoding the rest.

The value of the new row counts. Where that has none (a delete, or a large value that an update left alone) the old
row's does, if the change carries it; otherwise the value is absent, which is not the same as NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headgate.kernels.changes import layout
from headgate.kernels.changes.changes import change_of
from headgate.kernels.changes.columns import bytes_column
from headgate.kernels.changes.gaps import RowSource
from headgate.kernels.changes.layout import Bytes, Numbers, Table, Tables
from headgate.kernels.changes.shapes import Shapes
from headgate.kernels.changes.text import be32, le32
from headgate.kernels.changes.tuples import NO_ROW, NULL, TEXT_VALUE, UNCHANGED, find_rows
from headgate.kernels.jit import BYTES, BYTES_READ, NUMBERS, TABLE, compile_kernel, part

__all__ = ["PickColumns", "pick_kernel"]

VALUE, IS_NULL, ABSENT = range(3)
NO_COLUMN = -1

PickKernel: TypeAlias = Callable[[Bytes, Tables, Table, Numbers, Numbers, Bytes, Numbers, Bytes, int], None]


@part
def find_value(src: Bytes, row: int, column: int) -> tuple[int, int]:
    """Where a column of a row begins (its kind), and its kind. The walk has checked all lengths."""
    at = row + 2
    for _ in range(column):
        kind = src[at]
        at += 1
        if kind != NULL and kind != UNCHANGED:
            at += 4 + be32(src, at)
    return at, src[at]


@part
def pick_value(src: Bytes, start: int, shape: int, operation: int, column: int, tables: Tables) -> tuple[int, int]:
    """Whether there is a value, and where its length stands."""
    stop = start + le32(src, start - 4)
    _, old, _, old_key, new, _ = find_rows(src, start, stop, change_of(src[start]), tables, shape)
    if operation == layout.DELETE:
        new = NO_ROW  # also one that stands for half of an update
    if operation == layout.INSERT:
        old = NO_ROW
    if new != NO_ROW:
        at, kind = find_value(src, new, column)
        if kind == TEXT_VALUE:
            return VALUE, at + 1
        if kind == NULL:
            return IS_NULL, 0
    is_key = tables.columns[tables.shapes[shape, layout.FIRST] + column, layout.IS_KEY] != 0
    if old == NO_ROW or (old_key and not is_key):
        return ABSENT, 0
    at, kind = find_value(src, old, column)
    if kind == TEXT_VALUE:
        return VALUE, at + 1
    return (IS_NULL if kind == NULL else ABSENT), 0


def _kernel(sources: int) -> PickKernel:
    def kernel(
        src: Bytes, tables: Tables, rows: Table, wanted: Numbers, ends: Numbers, found: Bytes, state: Numbers,
        out: Bytes, copies: int,
    ) -> None:  # fmt: skip
        state[layout.COMPILED_FROM] = sources
        size = 0
        for row in range(len(rows)):
            operation, shape = rows[row, layout.OPERATION], rows[row, layout.OF_SHAPE]
            what, at = IS_NULL, 0
            if operation < layout.ROW_OPERATIONS and wanted[shape] != NO_COLUMN:
                what, at = pick_value(src, rows[row, layout.SOURCE], shape, operation, wanted[shape], tables)
            if what == VALUE:
                length = be32(src, at)
                if copies != 0:
                    for index in range(length):
                        out[size + index] = src[at + 4 + index]
                size += length
            found[row] = what
            ends[row] = size

    return kernel


@cache
def pick_kernel() -> PickKernel:
    """Notes for each row whether it has the value and where that ends in `out`, and with `copies` writes it there."""
    signature = types.void(
        BYTES_READ, layout.TABLES_TYPE, TABLE, NUMBERS, NUMBERS, BYTES, NUMBERS, BYTES, types.int64
    )  # fmt: skip
    return compile_kernel(signature, _kernel)


class PickColumns:
    """Columns by name, of whatever tables have them."""

    def __init__(self, names: Sequence[str], kind: int, shapes: Shapes) -> None:
        self._names = tuple(names)
        self._kind = kind
        self._shapes = shapes
        self._kernel = pick_kernel()
        self._state = np.zeros(layout.STATE_FIELDS, dtype=np.int64)

    def columns(self, source: RowSource) -> list[pa.Array]:
        """The columns as text, and whether any of them is absent."""
        absent = np.zeros(len(source.rows), dtype=np.bool_)
        picked = [self._column(source, name, absent) for name in self._names]
        return [*picked, pa.array(absent)]

    def _column(self, source: RowSource, name: str, absent: npt.NDArray[np.bool_]) -> pa.Array:
        count = len(source.rows)
        ends, found = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.uint8)
        wanted = np.array([_number_of(shape.relation.columns, name) for shape in self._shapes.shapes] or [NO_COLUMN])
        tables = self._shapes.tables(self._kind)
        # Twice: to see how long the values are, and to copy them.
        for out, copies in ((np.empty(0, dtype=np.uint8), 0), (None, 1)):
            room = np.empty(int(ends[-1]) if count else 0, dtype=np.uint8) if out is None else out
            self._kernel(source.src, tables, source.rows, wanted, ends, found, self._state, room, copies)
        absent |= found == ABSENT
        return bytes_column(pa.string(), room, ends, found == VALUE)


def _number_of(columns: Sequence[object], name: str) -> int:
    return next((index for index, column in enumerate(columns) if getattr(column, "name", None) == name), NO_COLUMN)
