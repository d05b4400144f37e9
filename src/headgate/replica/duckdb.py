"""A replica in a DuckDB file.

Batches go in as Arrow columns, which DuckDB reads at once; a statement per row would be a thousand times slower. Tables
have no primary key: DuckDB would keep an index for it, and a change is found by joining the whole batch instead.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.consume import Column, Schema, TableName
from headgate.model import DependencyError, OccupiedError
from headgate.replica.fold import Row
from headgate.replica.target import Target, dotted, quoted
from headgate.replica.values import Form, base_kind, base_type, form_of, tree_to_text

__all__ = ["DuckdbTarget"]

_TYPES = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "oid": "BIGINT",
    "real": "DOUBLE",  # a float4 is told exactly by a double alone
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "bytea": "BLOB",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
}
_ARROW = {Form.INT: pa.int64(), Form.FLOAT: pa.float64(), Form.BOOL: pa.bool_(), Form.BYTES: pa.binary()}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_FETCH = 10_000


class DuckdbTarget(Target):
    """One process at a time may have it open."""

    key_clause = False

    def __init__(self, path: str) -> None:
        super().__init__()
        try:
            import duckdb
        except ImportError:
            raise DependencyError(
                "a DuckDB target needs the package duckdb", remedy="pip install 'headgate[duckdb]'"
            ) from None
        self._aborted = duckdb.TransactionException
        self.data_errors = (*Target.data_errors, pa.ArrowInvalid, duckdb.DataError, duckdb.NotSupportedError,
                            duckdb.ProgrammingError, duckdb.IntegrityError)  # fmt: skip
        try:
            self._connection = duckdb.connect(path)
        except duckdb.IOException as error:
            raise OccupiedError(
                f"cannot open {path}: {str(error).splitlines()[0]}",
                where="target",
                remedy="DuckDB lets one process at a time open a file: stop the other one",
            ) from None
        self._connection.execute("set timezone = 'UTC'")
        self._is_open = False

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, list(values)).fetchall()

    def begin(self) -> None:
        self._connection.execute("begin")
        self._is_open = True

    def commit(self) -> None:
        self._connection.execute("commit")
        self._is_open = False

    def rollback(self) -> None:
        if self._is_open:
            self._connection.execute("rollback")
            self._is_open = False

    def close(self) -> None:
        self.rollback()
        self._connection.close()

    def place(self, table: TableName) -> tuple[str, ...]:
        return ("main" if table.schema == "public" else table.schema, table.table)

    def place_of_book(self) -> tuple[str, ...]:
        return ("main", super().place_of_book()[0])

    def exists(self, place: tuple[str, ...]) -> bool:
        query = "select 1 from duckdb_tables() where schema_name = ? and table_name = ?"
        return bool(self.execute(query, place))

    def type_of(self, column: Column) -> str:
        if form_of(column) is Form.TREE:
            return "JSON"
        if match := _NUMERIC.fullmatch(column.base_type or column.type):
            precision, scale = int(match[1]), int(match[2])
            if precision <= 38 and scale <= precision:
                return f"DECIMAL({precision},{scale})"
        if base_kind(column) != "base":
            return "VARCHAR"
        return _TYPES.get(base_type(column), "VARCHAR")

    def insert(self, place: tuple[str, ...], schema: Schema, rows: Sequence[Row]) -> None:
        names = ", ".join(quoted(column.name) for column in schema.sent)
        self._with_batch(
            f"insert into {dotted(place)} ({names}) select {self._casts(schema.sent)} from batch", schema.sent, rows
        )

    def put(self, schema: Schema, rows: Sequence[Row]) -> None:
        self._delete(schema, rows, schema.sent)
        self.insert(self.place(schema.name), schema, rows)

    def delete(self, schema: Schema, keys: Sequence[Row]) -> None:
        self._delete(schema, keys, _named(schema, schema.row_key))

    def patch(self, schema: Schema, columns: Sequence[str], rows: Sequence[Row]) -> None:
        sent = _named(schema, [*columns, *schema.row_key])
        place = dotted(self.place(schema.name))
        sets = ", ".join(f"{quoted(c.name)} = {self._cast(c, n)}" for n, c in enumerate(sent[: len(columns)]))
        where = self._matches(schema, sent, place, start=len(columns))
        self._with_batch(f"update {place} set {sets} from batch where {where}", sent, rows)

    def remove(self, schema: Schema, rows: Sequence[tuple[Row, int]]) -> None:
        """Floats are compared as text: -0 and 0 are two values."""
        place = dotted(self.place(schema.name))
        pairs = [
            (_exact(column, f"t.{quoted(column.name)}"), _exact(column, self._cast(column, number)))
            for number, column in enumerate(schema.sent)
        ]
        where = " and ".join(f"{ours} is not distinct from {theirs}" for ours, theirs in pairs)
        found = (
            f"select t.rowid as place, batch.n as n, row_number() over (partition by batch.number) as turn"
            f" from batch join {place} t on {where}"
        )
        sql = f"delete from {place} where rowid in (select place from ({found}) f where turn <= n)"
        more = {"n": [count for _, count in rows], "number": list(range(len(rows)))}
        self._with_batch(sql, schema.sent, [row for row, _ in rows], more)

    def clear_way(self, schema: Schema, old_key: Row, new_key: Row) -> None:
        place, columns = dotted(self.place(schema.name)), _named(schema, schema.row_key)
        new = self._equals(columns, place, start=0)
        old = self._equals(columns, "o", start=len(columns))
        sql = f"delete from {place} using batch where {new} and exists (select 1 from {place} o where {old})"
        self._with_batch(sql, [*columns, *columns], [(*new_key, *old_key)])

    def rows(self, schema: Schema) -> Iterator[Row]:
        texts = ", ".join(
            quoted(column.name) if form_of(column) in _ARROW else f"cast({quoted(column.name)} as varchar)"
            for column in schema.sent
        )
        cursor = self._connection.cursor()
        cursor.execute(f"select {texts} from {dotted(self.place(schema.name))}")
        readers = [_reader(column) for column in schema.sent]
        while rows := cursor.fetchmany(_FETCH):
            for row in rows:
                yield tuple(
                    value if value is None or read is None else read(value)
                    for read, value in zip(readers, row, strict=True)
                )

    def _delete(self, schema: Schema, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        place = dotted(self.place(schema.name))
        where = self._matches(schema, columns, place, start=0)
        self._with_batch(f"delete from {place} using batch where {where}", columns, rows)

    def _equals(self, columns: Sequence[Column], place: str, *, start: int) -> str:
        numbered = enumerate(columns, start)
        return " and ".join(f"{place}.{quoted(c.name)} = {self._cast(c, number)}" for number, c in numbered)

    def _matches(self, schema: Schema, columns: Sequence[Column], place: str, *, start: int) -> str:
        numbers = {column.name: start + number for number, column in enumerate(columns[start:])}
        pairs = [(column, numbers[column.name]) for column in _named(schema, schema.row_key)]
        return " and ".join(f"{place}.{quoted(c.name)} = {self._cast(c, number)}" for c, number in pairs)

    def _casts(self, columns: Sequence[Column]) -> str:
        return ", ".join(self._cast(column, number) for number, column in enumerate(columns))

    def _cast(self, column: Column, number: int) -> str:
        value = f"batch.c{number}"
        if base_type(column) in ("date", "timestamp without time zone", "timestamp with time zone"):
            value = f"ltrim({value}, '+')"  # a year of five digits has a sign on the wire
        return f"cast({value} as {self.type_of(column)})"

    def _with_batch(
        self, sql: str, columns: Sequence[Column], rows: Sequence[Row], more: Mapping[str, list[int]] | None = None
    ) -> None:
        arrays = [_array(column, values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
        batch = pa.table(arrays, names=[f"c{number}" for number in range(len(arrays))])
        for name, numbers in (more or {}).items():
            batch = batch.append_column(name, pa.array(numbers, pa.int64()))
        self._connection.register("batch", batch)
        try:
            self._connection.execute(sql)
        finally:
            # In a transaction that has failed DuckDB refuses this, too, in other words.
            with contextlib.suppress(self._aborted):
                self._connection.unregister("batch")


def _exact(column: Column, value: str) -> str:
    return f"cast({value} as varchar)" if form_of(column) is Form.FLOAT else value


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    form = form_of(column)
    if form is Form.TREE:
        return pa.array([tree_to_text(value) for value in values], pa.string())
    return pa.array(values, _ARROW.get(form, pa.string()))


def _reader(column: Column) -> Any:
    if base_type(column) in ("date", "timestamp without time zone", "timestamp with time zone"):
        return _iso
    return None


def _iso(text: str) -> str:
    """DuckDB's text of a date or time in ISO 8601, as the wire has it."""
    if text.endswith("infinity"):
        return text
    is_bc = " (BC)" in text
    clock = text.replace(" (BC)", "").replace(" ", "T", 1)
    clock = f"{clock[:-3]}Z" if clock.endswith("+00") else clock
    year, _, rest = clock.partition("-")
    if is_bc:
        number = 1 - int(year)
        return f"-{-number:04}-{rest}" if number else f"0000-{rest}"
    return f"+{year}-{rest}" if len(year) > 4 else clock


def _named(schema: Schema, names: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in schema.sent}
    return [by_name[name] for name in names]
