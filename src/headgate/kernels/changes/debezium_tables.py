"""The tables of Debezium's format, made from relations by its encoder, which is the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Table, Tables
from headgate.kernels.changes.tables import TextTable, table_of
from headgate.kernels.changes.wording import Fields
from headgate.wire.envelope.debezium import DebeziumEncoder
from headgate.wire.envelope.debezium.encoder import column_json
from headgate.wire.pgoutput import Column, Relation

__all__ = ["DebeziumTables"]

_RULES = {name: number for number, name in enumerate(layout.RULES)} | {
    name: layout.SLOW + 1 + number for number, name in enumerate(layout.DEBEZIUM_RULES)
}
# What a value may take besides its own bytes and its name: a scale, base64 of eight bytes, the zeros of a time.
_VALUE_BYTES = 64
_EVENT_BYTES = 64
# What the fields of a transaction may take besides the pieces: ten numbers.
_TRANSACTION_BYTES = 256


class DebeziumTables(TextTable):
    """Grows by a shape at a time, like `FormTables`."""

    def __init__(self, encoder: DebeziumEncoder) -> None:
        super().__init__(_pieces(encoder))
        self._encoder = encoder
        self._origins: list[tuple[Relation, int]] = []  # of each column: its relation and its place there
        self.transaction_bytes = len(self.text) + _TRANSACTION_BYTES

    def add(self, relation: Relation, _heads: Sequence[Fields]) -> None:
        """A shape more."""
        form = self._encoder.table(relation)
        places = [self.put(form.begin), self.put(form.middle.encode()), self.put(form.key)]
        columns, most = [], 0
        for number, column in enumerate(relation.columns):
            how = form.columns[number]
            name = self.put(form.names[number].encode())
            unavailable, fill = self.put(how.unavailable.encode()), self.put(form.fills[number].encode())
            rule = _RULES.get(how.rule, layout.SLOW)
            keys = int(column.is_key), how.param, int(form.is_primary[number])
            columns.append([*name, rule, *keys, *unavailable, *fill])
            most += name[1] - name[0] + max(_VALUE_BYTES, *(stop - start for start, stop in (unavailable, fill)))
        head = sum(stop - start for start, stop in places)
        fixed = head + int(self.pieces[-1]) + _EVENT_BYTES + 2 * most
        keys_count = sum(column.is_key for column in relation.columns)
        shape = [len(self.columns), len(columns), keys_count, 0, fixed, *(edge for place in places for edge in place)]
        self.shapes = np.concatenate([self.shapes, table_of([shape], layout.SHAPE_FIELDS)])
        self.columns = np.concatenate([self.columns, table_of(columns, layout.COLUMN_FIELDS)])
        self._origins += [(relation, number) for number in range(len(columns))]

    def arrays(self, relations: Table) -> Tables:
        """What a kernel gets."""
        return self.tables(relations)

    def value(self, column: int, value: Column) -> bytes:
        """A value that a kernel has left out; `column` is its number in the tables."""
        relation, number = self._origins[column]
        return column_json(relation, number, self._encoder.table(relation).columns[number], value).encode()


def _pieces(encoder: DebeziumEncoder) -> tuple[bytes, ...]:
    first, second = encoder.source
    texts = (
        first,
        second,
        '\\",\\"',
        '\\"]","ts_us":',
        ',"ts_ns":',
        ',"txId":',
        ',"lsn":',
        ',"xmin":null},"transaction":null,"op":"',
        '","ts_ms":',
        ',"ts_us":',
        ',"ts_ns":',
        encoder.end,
        ',"after":',
        encoder.key_end,
    )
    return tuple(text.encode() for text in texts)
