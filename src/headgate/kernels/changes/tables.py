"""The tables of one format, made from relations. `layout` says what stands where in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Table, Tables
from headgate.kernels.changes.reference import ValueWriter
from headgate.kernels.changes.wording import Fields, Wording
from headgate.wire.pgoutput import Column, Relation
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["FormTables", "TextTable", "table_of"]

_RULES = {name: number for number, name in enumerate(layout.RULES)}
# What a value may take besides its own bytes and its name: quotes and a comma, the eight bytes of a float.
_VALUE_BYTES = 12
# What an event may take besides its head, its transaction's fields and its rows: an ordinal twice, two sizes of maps.
_EVENT_BYTES = 64
# What the fields of a transaction may take besides the pieces: two LSNs, a time, an xid, a count, a position.
_TRANSACTION_BYTES = 128


class TextTable:
    """Texts one behind the other, and the tables of shapes and columns that point into them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.text = bytearray()
        self.pieces = np.array([*(self.put(piece)[0] for piece in pieces), len(self.text)], dtype=np.int64)
        self.shapes: Table = np.empty((0, layout.SHAPE_FIELDS), dtype=np.int64)
        self.columns: Table = np.empty((0, layout.COLUMN_FIELDS), dtype=np.int64)

    def put(self, text: bytes) -> tuple[int, int]:
        """One text more: where it begins and ends."""
        start = len(self.text)
        self.text += text
        return start, len(self.text)

    def tables(self, relations: Table) -> Tables:
        """What a kernel gets."""
        text = np.frombuffer(bytes(self.text), dtype=np.uint8)
        return Tables(text, self.pieces, relations, self.shapes, self.columns)


class FormTables(TextTable):
    """Grows by a shape at a time; its arrays are made anew then, which is rare."""

    def __init__(self, wording: Wording, types: TypeCatalog) -> None:
        super().__init__(wording.pieces)
        self._wording = wording
        self._types = types
        self._origins: list[tuple[Relation, int]] = []  # of each column: its relation and its place there
        self._writers: dict[int, ValueWriter] = {}
        self.transaction_bytes = len(self.text) + _TRANSACTION_BYTES

    def add(self, relation: Relation, heads: Sequence[Fields]) -> None:
        """A shape more. `heads` are the first fields of its events, for each operation with a row."""
        places = [self.put(self._wording.head(fields)) for fields in heads]
        unused = [0] * (layout.COLUMN_FIELDS - layout.PARAM)
        columns = [
            [*self.put(self._wording.name(column.name)), self._rule(column.type_id), int(column.is_key), *unused]
            for column in relation.columns
        ]
        names = sum(column[layout.NAME_END] - column[layout.NAME] for column in columns)
        head = max(stop - start for start, stop in places)
        fixed = head + int(self.pieces[-1]) + _EVENT_BYTES + 2 * (names + _VALUE_BYTES * len(columns))
        keys = sum(column.is_key for column in relation.columns)
        shape = [len(self.columns), len(columns), keys, int(self._is_whole(relation)), fixed]
        shape += [edge for place in places for edge in place]
        self.shapes = np.concatenate([self.shapes, table_of([shape], layout.SHAPE_FIELDS)])
        self.columns = np.concatenate([self.columns, table_of(columns, layout.COLUMN_FIELDS)])
        self._origins += [(relation, number) for number in range(len(columns))]

    def arrays(self, relations: Table) -> Tables:
        """What a kernel gets."""
        return self.tables(relations)

    def value(self, column: int, value: Column) -> bytes:
        """A value that a kernel has left out; `column` is its number in the tables."""
        writer = self._writers.get(column)
        if writer is None:
            relation, number = self._origins[column]
            writer = self._writers[column] = ValueWriter(self._types, relation, number, self._wording.form)
        return writer(value)

    def _rule(self, type_id: int) -> int:
        return _RULES.get(self._types.codec(type_id).name, layout.SLOW)

    def _is_whole(self, relation: Relation) -> bool:
        """A map has no key twice, so the reference drops such a column. No server has one."""
        names = [column.name for column in relation.columns]
        return self._wording.form == layout.MSGPACK and len(set(names)) < len(names)


def table_of(rows: list[list[int]], fields: int) -> Table:
    """Rows of numbers as an array, also if there are none."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), fields)
