"""The typed shape of `pgcdc`: the changes of one table, in its own columns with proper Spark types.

    describe_table(url, table)   -> TypedTable, from the catalog
    TypedTable.ddl               -> the schema for Spark
    TypedTable.rows(batch, ...)  -> a decoded batch as rows of the table

After the table's columns come `_op`, `_position`, `_commit_time`, `_xid` and `_unchanged`, the names of the columns
that an update did not send. An update that changes the key becomes two rows of the same position: a delete of the old
key, then the update. A value that its Spark type cannot hold is an error, never NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import DataError, HeadgateError, UsageError
from headgate.model.record import OP, PAYLOAD, POSITION, SCHEMA, TABLE
from headgate.postgres import connect
from headgate.wire.pgtypes import BUILTIN_TYPES, TypeCatalog, Value

__all__ = ["COMMIT_TIME", "UNCHANGED", "XID", "TypedColumn", "TypedTable", "describe_table"]

COMMIT_TIME, XID, UNCHANGED = "_commit_time", "_xid", "_unchanged"

_WHERE = 'format("pgcdc")'
_STAMP = pa.timestamp("us", tz="UTC")
_STRING = ("string", pa.string())
_SCALARS: dict[str, tuple[str, pa.DataType]] = {
    "bool": ("boolean", pa.bool_()),
    "int2": ("smallint", pa.int16()),
    "int4": ("int", pa.int32()),
    "int8": ("bigint", pa.int64()),
    "oid": ("bigint", pa.int64()),
    "float4": ("float", pa.float32()),
    "float8": ("double", pa.float64()),
    "bytea": ("binary", pa.binary()),
    "date": ("date", pa.date32()),
    "timestamp": ("timestamp_ntz", pa.timestamp("us")),
    "timestamptz": ("timestamp", _STAMP),
}
_RESERVED = (
    (OP, "string", pa.string()),
    (POSITION, "string", pa.string()),
    (COMMIT_TIME, "timestamp", _STAMP),
    (XID, "bigint", pa.int64()),
    (UNCHANGED, "array<string>", pa.list_(pa.field("element", pa.string()))),
)
_MOST_DIGITS = 38  # of a decimal in Spark and in Arrow


class _Event(msgspec.Struct):
    """The part of an event's payload that is the row."""

    data: dict[str, Any]
    old: dict[str, Any] | None = None


_events = msgspec.msgpack.Decoder(_Event)


class _Rows(NamedTuple):
    """Rows to be: which row of the batch each comes from, what it does, its values, and what was not sent."""

    source: list[int]
    op: list[str]
    values: list[dict[str, Value]]
    unchanged: list[list[str]]

    def add(self, source: int, op: str, values: dict[str, Value], unchanged: list[str]) -> None:
        self.source.append(source)
        self.op.append(op)
        self.values.append(values)
        self.unchanged.append(unchanged)


@dataclass(frozen=True)
class TypedColumn:
    """A column: its name, its type in Spark and in Arrow, and the PostgreSQL type whose text a string column has.

    `text_type` is the element's type for an array, and 0 for a column that is not made of strings.
    """

    name: str
    spark: str
    arrow: pa.DataType
    text_type: int
    is_key: bool = False


@dataclass(frozen=True)
class TypedTable:
    """One table as Spark sees it. Goes to the executors."""

    schema: str
    name: str
    columns: tuple[TypedColumn, ...]

    @property
    def ddl(self) -> str:
        """The schema in Spark's DDL."""
        own = [(_quoted(column.name), column.spark) for column in self.columns]
        return ", ".join(f"{name} {spark}" for name, spark in [*own, *((r[0], r[1]) for r in _RESERVED)])

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema in Arrow."""
        own = [(column.name, column.arrow) for column in self.columns]
        return pa.schema(own + [(name, arrow) for name, _, arrow in _RESERVED])

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def _key(self) -> tuple[str, ...]:
        """What identifies a row; without a key that is all of it, and the server sends all of it."""
        return tuple(column.name for column in self.columns if column.is_key) or self._names

    def rows(self, batch: pa.RecordBatch, types: TypeCatalog) -> pa.RecordBatch:
        """The changes of this table among those of a batch whose payload is MessagePack."""
        is_ours = pc.and_(pc.equal(batch[SCHEMA], self.schema), pc.equal(batch[TABLE], self.name))
        is_ours = pc.and_(is_ours, pc.not_equal(batch[OP], "schema"))
        batch = batch.filter(is_ours)
        rows = _Rows([], [], [], [])
        for index, (op, payload) in enumerate(zip(batch[OP].to_pylist(), batch[PAYLOAD].to_pylist(), strict=True)):
            self._add(rows, index, op, _events.decode(payload))
        source = pa.array(rows.source, pa.int64())
        columns = [
            *(self._column(column, rows.values, types) for column in self.columns),
            pa.array(rows.op, pa.string()),
            *(batch[name].take(source) for name in (POSITION, COMMIT_TIME, XID)),
            pa.array(rows.unchanged, _RESERVED[-1][2]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _add(self, rows: _Rows, index: int, op: str, event: _Event) -> None:
        if op == "truncate":
            rows.add(index, op, {}, [])
        elif op == "update":
            old = event.old or {}
            values = old | event.data  # a value that was not sent again may be in the old row
            if any(name in old and old[name] != values[name] for name in self._key):
                rows.add(index, "delete", old, [])
            rows.add(index, op, values, [name for name in self._names if name not in values])
        else:
            rows.add(index, op, event.data, [])

    def _column(self, column: TypedColumn, rows: Sequence[dict[str, Value]], types: TypeCatalog) -> pa.Array:
        name = column.name
        values = [row.get(name) for row in rows]
        try:
            if column.text_type:
                values = _texts(values, column, types)
            return _converted(values, column.arrow)
        except HeadgateError as error:
            raise error.at(f"{self.schema}.{self.name}.{name}") from None


def describe_table(
    url: str, table: str, *, publications: Collection[str] = (), text_columns: Collection[str] = ()
) -> TypedTable:
    """Describe `schema.table` as the catalog has it now, which any role may read.

    With publications, only the columns that these publish; `text_columns` become text, whatever their type.
    """
    schema, _, name = table.rpartition(".")
    schema = schema or "public"
    query = resources.files("headgate.sources").joinpath("typed.sql").read_bytes()
    parameters = {"schema": schema, "table": name, "publications": list(publications)}
    with connect(url) as connection:
        found = connection.execute(query, parameters).fetchall()
    if not found:
        raise UsageError(
            f"there is no table {schema}.{name}", where=_WHERE, remedy='give .option("table", "schema.table"), unquoted'
        )
    unknown = set(text_columns) - {row["name"] for row in found}
    if unknown:
        raise UsageError(
            f"the option textColumns names {', '.join(sorted(unknown))}, which {schema}.{name} does not have",
            where=_WHERE,
            remedy=f"its columns: {', '.join(row['name'] for row in found)}",
        )
    return TypedTable(schema, name, tuple(_described(row, row["name"] in text_columns) for row in found))


def _described(row: dict[str, Any], as_text: bool) -> TypedColumn:
    element = BUILTIN_TYPES.get(row["element_base"])
    is_array = row["element"] and (element is None or not element.element)
    if as_text or (row["element"] and not is_array):
        (spark, arrow), text_type = _STRING, row["oid"]
    elif is_array:
        typmod = row["typmod"] if row["typmod"] != -1 else row["element_typmod"]
        inner, inner_arrow = _scalar(row["element_base"], typmod)
        spark, arrow = f"array<{inner}>", pa.list_(pa.field("element", inner_arrow))
        text_type = row["element"] if inner == "string" else 0
    else:
        spark, arrow = _scalar(row["base"], row["typmod"])
        text_type = row["oid"] if spark == "string" else 0
    return TypedColumn(row["name"], spark, arrow, text_type, row["is_key"])


def _scalar(oid: int, typmod: int) -> tuple[str, pa.DataType]:
    info = BUILTIN_TYPES.get(oid)
    name = info.name if info else ""
    if name == "numeric" and typmod != -1:
        return _decimal(typmod)
    return _SCALARS.get(name, _STRING)


def _decimal(typmod: int) -> tuple[str, pa.DataType]:
    """`numeric(p,s)` packs both into its typmod, s as 11 bits with a sign (negative since PostgreSQL 15)."""
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4) & 0x7FF ^ 1024) - 1024
    if precision > _MOST_DIGITS or not 0 <= scale <= precision:
        return _STRING
    return f"decimal({precision},{scale})", pa.decimal128(precision, scale)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _texts(values: list[Value], column: TypedColumn, types: TypeCatalog) -> list[Value]:
    """The values as PostgreSQL prints them."""
    codec = types.codec(column.text_type)
    if codec.name in ("text", "json"):
        return values

    def text(value: Value) -> Value:
        if value is None:
            return None
        if pa.types.is_list(column.arrow) and isinstance(value, list):
            return [None if item is None else codec.encode(item) for item in value]
        return codec.encode(value)

    return [text(value) for value in values]


def _converted(values: list[Value], target: pa.DataType) -> pa.Array:
    """Values as an Arrow array. If they do not go together, one by one, which also finds the one to blame."""
    try:
        return _cast(values, target)
    except pa.ArrowException:
        if len(values) == 1:
            raise _unfit(values[0], target) from None
        return pa.concat_arrays([_converted([value], target) for value in values])


def _cast(values: list[Value], target: pa.DataType) -> pa.Array:
    """Arrow's own inference and safe casts, but for those that would misread a value."""
    found = pa.array(values)
    if not pa.types.is_temporal(_leaf(target)):
        return found.cast(target)
    if not (pa.types.is_string(_leaf(found.type)) or pa.types.is_null(_leaf(found.type))):
        raise pa.ArrowTypeError("a number would be taken for a time since 1970")
    array = found.cast(target)
    if _has_year_zero(array):
        raise pa.ArrowInvalid("Spark's years begin with 1")
    return array


def _leaf(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pa.types.is_list(arrow) else arrow


def _has_year_zero(array: pa.Array) -> bool:
    flat = array.flatten() if pa.types.is_list(array.type) else array
    return bool(pc.any(pc.less(pc.year(flat), 1)).as_py())


def _unfit(value: Value, target: pa.DataType) -> DataError:
    text = repr(value)
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    return DataError(
        f"the value {shown} does not fit into the Spark type {target}",
        remedy='read the column as text with .option("textColumns", "<column>"), '
        "or, if its type was altered, start the query again",
    )
