"""A replica in PostgreSQL: in schemas of the same names, with the same types where the server has them.

Values go in as PostgreSQL's own text. A batch is one statement over arrays of text, one for each column, cast to its
type; the rows of a snapshot are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

from headgate.consume import Column, Schema, TableName
from headgate.model import ConnectError
from headgate.postgres import open_connection
from headgate.replica.fold import Row
from headgate.replica.target import Target, dotted, quoted
from headgate.replica.values import Form, base_type, form_of, tree_to_text
from headgate.wire.pgtypes import BUILTIN_TYPES, SESSION, TypeCatalog

__all__ = ["PostgresTarget"]

_CATALOG = TypeCatalog()


class _Held(NamedTuple):
    """How values of a column are kept: the type, and what makes its text of a value and back."""

    type: str
    encode: Callable[[Any], str]
    decode: Callable[[str], Any]


class PostgresTarget(Target):
    """The role needs CREATE on the database, or on schemas that are there."""

    mark = "%s"
    data_errors = (*Target.data_errors, psycopg.DataError, psycopg.NotSupportedError, psycopg.IntegrityError,
                   psycopg.ProgrammingError)  # fmt: skip

    def __init__(self, url: str) -> None:
        super().__init__()
        try:
            self._connection = open_connection(url, "headgate replica", SESSION | {"client_min_messages": "warning"})
        except psycopg.OperationalError as error:
            raise ConnectError(
                f"cannot reach the target: {str(error).splitlines()[0]}", where="target", remedy="check --target"
            ) from None
        self._columns: dict[tuple[object, ...], _Held] = {}

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def begin(self) -> None:
        self._connection.execute("begin")

    def commit(self) -> None:
        self._connection.execute("commit")

    def rollback(self) -> None:
        if not self._connection.closed:
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def place(self, table: TableName) -> tuple[str, ...]:
        return (table.schema, table.table)

    def exists(self, place: tuple[str, ...]) -> bool:
        return bool(self.execute("select 1 where to_regclass(%s) is not null", [dotted(place)]))

    def type_of(self, column: Column) -> str:
        """The source's type if it is built in; of a domain, what it is made of; an enum of these labels; else text."""
        return self._held(column).type

    def _held(self, column: Column) -> _Held:
        """How a column is kept here. Oids of built-in types are the same on every server."""
        key = (column.type, column.type_oid, column.kind, column.base_type, *(column.labels or ()))
        known = self._columns.get(key)
        if known is None:
            known = self._columns[key] = self._look_up(column)
        return known

    def _look_up(self, column: Column) -> _Held:
        oid = column.type_oid
        if column.kind == "domain":
            [[oid]] = self.execute("select coalesce(to_regtype(%s)::oid::int8, 0)", [base_type(column)])
        info = BUILTIN_TYPES.get(int(oid))
        # A regclass is the name of something that this database may not have.
        if info is not None and not info.name.lstrip("_").startswith("reg"):
            codec = _CATALOG.codec(info.oid)
            is_tree = form_of(column) is Form.TREE
            decode = (lambda text: tree_to_text(codec.decode(text))) if is_tree else codec.decode
            return _Held(column.base_type or column.type, codec.encode, decode)
        if column.kind == "enum" and self._has_labels(column):
            return _Held(column.type, str, str)
        form = form_of(column)
        return _Held("text", tree_to_text if form is Form.TREE else _plain_text, _PLAIN.get(form, str))

    def _has_labels(self, column: Column) -> bool:
        query = "select array_agg(e.enumlabel::text) from pg_catalog.pg_enum e where e.enumtypid = to_regtype(%s)::oid"
        [[labels]] = self.execute(query, [column.type])
        return bool(labels) and set(labels) >= set(column.labels or ())

    def insert(self, place: tuple[str, ...], schema: Schema, rows: Sequence[Row]) -> None:
        encoders = [self._held(column).encode for column in schema.sent]
        sql = f"copy {dotted(place)} ({_columns(schema.sent)}) from stdin"
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row([None if v is None else e(v) for e, v in zip(encoders, row, strict=True)])

    def put(self, schema: Schema, rows: Sequence[Row]) -> None:
        key = set(schema.row_key)
        rest = [quoted(column.name) for column in schema.sent if column.name not in key]
        action = f"update set {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "nothing"
        self._with_batch(
            f"insert into {dotted(self.place(schema.name))} ({_columns(schema.sent)})"
            f" select {self._values(schema.sent)} from batch"
            f" on conflict ({', '.join(map(quoted, schema.row_key))}) do {action}",
            schema.sent,
            rows,
        )

    def delete(self, schema: Schema, keys: Sequence[Row]) -> None:
        columns = _named(schema, schema.row_key)
        where = self._matches(columns, 0)
        self._with_batch(
            f"delete from {dotted(self.place(schema.name))} t using batch where {where}",
            columns,
            keys,
        )

    def patch(self, schema: Schema, columns: Sequence[str], rows: Sequence[Row]) -> None:
        sent = _named(schema, [*columns, *schema.row_key])
        sets = ", ".join(f"{quoted(c.name)} = {self._value(c, n)}" for n, c in enumerate(sent[: len(columns)]))
        where = self._matches(sent[len(columns) :], len(columns))
        table = dotted(self.place(schema.name))
        self._with_batch(f"update {table} t set {sets} from batch where {where}", sent, rows)

    def remove(self, schema: Schema, rows: Sequence[tuple[Row, int]]) -> None:
        """Compared as text, all columns in one: not every type has an equality, and this one can be hashed."""
        table = dotted(self.place(schema.name))
        ours = ", ".join(f"t.{quoted(column.name)}::text" for column in schema.sent)
        theirs = ", ".join(f"{self._value(column, number)}::text" for number, column in enumerate(schema.sent))
        found = (
            f"select t.ctid, batch.n, row_number() over (partition by wanted.line) as place"
            f" from batch cross join lateral (select row({theirs})::text as line) wanted"
            f" join {table} t on row({ours})::text = wanted.line"
        )
        sql = f"delete from {table} where ctid = any (array(select ctid from ({found}) f where place <= n))"
        self._with_batch(sql, schema.sent, [row for row, _ in rows], [count for _, count in rows])

    def clear_way(self, schema: Schema, old_key: Row, new_key: Row) -> None:
        table, columns = dotted(self.place(schema.name)), _named(schema, schema.row_key)
        new, old = self._matches(columns, 0), self._matches(columns, len(columns), "o")
        sql = f"delete from {table} t using batch where {new} and exists (select from {table} o where {old})"
        self._with_batch(sql, [*columns, *columns], [(*new_key, *old_key)])

    def rows(self, schema: Schema) -> Iterator[Row]:
        """Copied out, since that prints values as they are; a cast to text drops the padding of char(n)."""
        decoders = [self._held(column).decode for column in schema.sent]
        sql = f"copy (select {_columns(schema.sent)} from {dotted(self.place(schema.name))}) to stdout"
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in copy.rows():
                yield tuple(None if v is None else d(v) for d, v in zip(decoders, row, strict=True))

    def _with_batch(
        self, statement: str, columns: Sequence[Column], rows: Sequence[Row], numbers: Sequence[int] | None = None
    ) -> None:
        """`batch` has the values of each row as text, and `n` if there are numbers beside them."""
        encoders = [self._held(column).encode for column in columns]
        arrays = [
            [None if value is None else encode(value) for value in values]
            for encode, values in zip(encoders, zip(*rows, strict=True), strict=True)
        ]
        marks = ["%s::text[]" for _ in columns]
        names = [f"c{number}" for number in range(len(columns))]
        values: list[list[Any]] = [*arrays]
        if numbers is not None:
            marks, names, values = [*marks, "%s::int8[]"], [*names, "n"], [*values, list(numbers)]
        batch = f"select * from unnest({', '.join(marks)}) u({', '.join(names)})"
        self.execute(f"with batch as ({batch}) {statement}", values)

    def _matches(self, columns: Sequence[Column], start: int, table: str = "t") -> str:
        return " and ".join(
            f"{table}.{quoted(column.name)} = {self._value(column, start + number)}"
            for number, column in enumerate(columns)
        )

    def _values(self, columns: Sequence[Column]) -> str:
        return ", ".join(self._value(column, number) for number, column in enumerate(columns))

    def _value(self, column: Column, number: int) -> str:
        return f"batch.c{number}::{self.type_of(column)}"


_PLAIN: dict[Form, Callable[[str], Any]] = {
    Form.INT: int,
    Form.FLOAT: float,
    Form.BOOL: lambda text: text in ("t", "true"),  # of a domain, or kept as text
    Form.BYTES: lambda text: bytes.fromhex(text[2:]),
}


def _plain_text(value: Any) -> str:
    """Of a type that is not built in: a domain's value, a label, or whatever is kept as text."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return str(value)


def _columns(columns: Sequence[Column]) -> str:
    return ", ".join(quoted(column.name) for column in columns)


def _named(schema: Schema, names: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in schema.sent}
    return [by_name[name] for name in names]
