"""A replica in a SQLite file.

A column's affinity is chosen so that SQLite keeps every value as it is: exact numbers and times are text, and a float
has no declared type, since a REAL column would make 0.0 of -0.0. NaN, which SQLite does not have, is the text NaN.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headgate.consume import Column, Schema, TableName
from headgate.model import OccupiedError
from headgate.replica.fold import Row
from headgate.replica.target import Target, dotted, quoted
from headgate.replica.values import Form, form_of, forms_of, tree_to_text

__all__ = ["SqliteTarget"]

_TYPES = {Form.INT: "INTEGER", Form.BOOL: "INTEGER", Form.FLOAT: "", Form.BYTES: "BLOB"}
_BUSY_S = 30.0
_BATCH, _COUNT = "_headgate_batch", "_headgate_count"
_MOST_INDEXED = 60  # columns; an index has no room for more than some hundred


class SqliteTarget(Target):
    """Readers may look at it while it is written: it is in WAL mode."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = normal")
        self._connection.create_function("headgate_sign", 1, _sign, deterministic=True)

    data_errors = (*Target.data_errors, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError,
                   sqlite3.IntegrityError)  # fmt: skip

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def begin(self) -> None:
        try:
            self._connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            raise OccupiedError(
                f"cannot write: {error}", where="target", remedy="does another program hold it?"
            ) from None

    def commit(self) -> None:
        self._connection.execute("commit")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    def close(self) -> None:
        self.rollback()
        self._connection.close()

    def place(self, table: TableName) -> tuple[str, ...]:
        return (table.table if table.schema == "public" else f"{table.schema}.{table.table}",)

    def exists(self, place: tuple[str, ...]) -> bool:
        return bool(self.execute("select 1 from sqlite_master where type = 'table' and name = ?", place))

    def type_of(self, column: Column) -> str:
        return _TYPES.get(form_of(column), "TEXT")

    def insert(self, place: tuple[str, ...], schema: Schema, rows: Sequence[Row]) -> None:
        self._many(f"insert into {dotted(place)} ({_columns(schema)}) values ({_marks(schema)})", rows, schema.sent)

    def put(self, schema: Schema, rows: Sequence[Row]) -> None:
        place = dotted(self.place(schema.name))
        self._many(f"insert or replace into {place} ({_columns(schema)}) values ({_marks(schema)})", rows, schema.sent)

    def delete(self, schema: Schema, keys: Sequence[Row]) -> None:
        sql = f"delete from {dotted(self.place(schema.name))} where {_matches(schema.row_key, '=')}"
        self._many(sql, keys, _named(schema, schema.row_key))

    def patch(self, schema: Schema, columns: Sequence[str], rows: Sequence[Row]) -> None:
        sets = ", ".join(f"{quoted(name)} = ?" for name in columns)
        where = _matches(schema.row_key, "=")
        sql = f"update {dotted(self.place(schema.name))} set {sets} where {where}"
        self._many(sql, rows, _named(schema, [*columns, *schema.row_key]))

    def remove(self, schema: Schema, rows: Sequence[tuple[Row, int]]) -> None:
        """Looked up in a table of what goes, in one pass over the table; both have the same affinities."""
        place, names = dotted(self.place(schema.name)), [quoted(column.name) for column in schema.sent]
        self.execute(f"create temp table {_BATCH} as select {', '.join(names)}, 0 as {_COUNT} from {place} where 0")
        marks = f"{_marks(schema)}, ?"
        columns = [*schema.sent, Column(name=_COUNT, type="bigint")]
        self._many(f"insert into temp.{_BATCH} values ({marks})", [(*row, count) for row, count in rows], columns)
        self.execute(f"create index temp.{_BATCH}_values on {_BATCH} ({', '.join(names[:_MOST_INDEXED])})")
        equal = " and ".join(f"b.{name} is t.{name}" for name in names)
        floats = [quoted(column.name) for column in schema.sent if form_of(column) is Form.FLOAT]
        # -0 and 0 are two values, though they are equal.
        equal += "".join(f" and headgate_sign(b.{name}) is headgate_sign(t.{name})" for name in floats)
        found = (
            f"select t.rowid as place, b.{_COUNT} as n, row_number() over (partition by b.rowid) as turn"
            f" from {place} t cross join temp.{_BATCH} b on {equal}"
        )
        self.execute(f"delete from {place} where rowid in (select place from ({found}) where turn <= n)")
        self.execute(f"drop table temp.{_BATCH}")

    def clear_way(self, schema: Schema, old_key: Row, new_key: Row) -> None:
        place, key = dotted(self.place(schema.name)), schema.row_key
        exists = f"exists (select 1 from {place} where {_matches(key, '=')})"
        columns = _named(schema, [*key, *key])
        self._many(f"delete from {place} where {_matches(key, '=')} and {exists}", [(*new_key, *old_key)], columns)

    def rows(self, schema: Schema) -> Iterator[Row]:
        forms = forms_of(schema)
        sql = f"select {_columns(schema)} from {dotted(self.place(schema.name))}"
        for row in self._connection.execute(sql):
            yield tuple(_from_sqlite(form, value) for form, value in zip(forms, row, strict=True))

    def _many(self, sql: str, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        odd = {number: _BINDERS[form] for number, c in enumerate(columns) if (form := form_of(c)) in _BINDERS}
        self._connection.executemany(sql, [_bound(row, odd) for row in rows] if odd else rows)


def _bound(row: Row, odd: dict[int, Callable[[Any], Any]]) -> Row:
    values = list(row)
    for number, bind in odd.items():
        values[number] = bind(values[number])
    return tuple(values)


def _sign(value: Any) -> Any:
    return math.copysign(1, value) if isinstance(value, float) else None


def _float(value: Any) -> Any:
    return "NaN" if value is not None and math.isnan(value) else value


_BINDERS: dict[Form, Callable[[Any], Any]] = {Form.TREE: tree_to_text, Form.FLOAT: _float}


def _from_sqlite(form: Form, value: Any) -> Any:
    if value is None:
        return None
    if form is Form.BOOL:
        return bool(value)
    if form is Form.FLOAT:
        return float(value)
    return value


def _columns(schema: Schema) -> str:
    return ", ".join(quoted(column.name) for column in schema.sent)


def _marks(schema: Schema) -> str:
    return ", ".join("?" for _ in schema.sent)


def _matches(names: Sequence[str], operator: str) -> str:
    return " and ".join(f"{quoted(name)} {operator} ?" for name in names)


def _named(schema: Schema, names: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in schema.sent}
    return [by_name[name] for name in names]
