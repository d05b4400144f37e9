"""The polled table: its columns as Spark sees them, what orders its rows, and what identifies one.

describe(options) -> PolledTable, from the catalog
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from headgate.model import ConfigError
from headgate.model.record import OP, POSITION, SCHEMA, TABLE
from headgate.postgres.catalog import load_types
from headgate.sources.options import names
from headgate.sources.postgres_poll.connections import Connection, connected
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_snapshot.plan import table_name
from headgate.sources.typed import TypedTable, describe_table
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeInfo

__all__ = ["RESERVED", "ROW_NUMBER", "Named", "PolledTable", "describe"]

RESERVED = (POSITION, SCHEMA, TABLE, OP)
ROW_NUMBER = "_row_number"  # travels beside a row from the server to its position
_INT8 = 20

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Named:
    """A column, and its type as SQL writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class PolledTable:
    """Goes to the executors."""

    typed: TypedTable
    relation: Relation  # the columns of a row on its way from the server: those of `typed`, then the row's number
    types: tuple[TypeInfo, ...]
    tracking: Named
    key: tuple[Named, ...]

    @property
    def where(self) -> str:
        return f"{self.typed.schema}.{self.typed.name}"

    @property
    def ddl(self) -> str:
        """The schema in Spark's DDL."""
        own = [f"`{column.name.replace('`', '``')}` {column.spark}" for column in self.typed.columns]
        return ", ".join([*own, *(f"{name} string" for name in RESERVED)])


def describe(options: PollOptions) -> PolledTable:
    """The table as it is now, with everything that is asked of it checked."""
    schema, name = table_name(options.table)
    where = f"{schema}.{name}"
    query = resources.files("headgate.sources.postgres_poll").joinpath("table.sql").read_bytes()
    with connected(options.url, where) as connection:
        found = connection.execute(query, {"schema": schema, "table": name}).fetchall()
        if not found:
            raise ConfigError(
                f"there is no table {where}", where=where, remedy="write schema.table; views have no order"
            )
        rows = {row["name"]: row for row in found}
        _refuse_unknown(options, rows, where)
        types = _types(connection, found)
    typed = _typed(options, schema, name)
    chosen = [rows[column.name] for column in typed.columns]
    columns = [RelationColumn(False, row["name"], row["type_id"], row["typmod"]) for row in chosen]
    columns.append(RelationColumn(False, ROW_NUMBER, _INT8, -1))
    relation = Relation(found[0]["relation"], schema, name, ReplicaIdentity.DEFAULT, tuple(columns))
    tracking = rows[options.tracking_column]
    return PolledTable(typed, relation, types, Named(tracking["name"], tracking["type"]), _key(options, rows, where))


def _typed(options: PollOptions, schema: str, name: str) -> TypedTable:
    """Type a table as `pgcdc` does, but without a publication: every stored column."""
    typed = describe_table(options.url, f"{schema}.{name}", text_columns=names(options.text_columns))
    wanted = names(options.columns)
    columns = tuple(column for column in typed.columns if not wanted or column.name in wanted)
    taken = [column.name for column in columns if column.name in (*RESERVED, ROW_NUMBER)]
    if taken or not columns:
        raise ConfigError(
            f"the column name {taken[0]} is headgate's own" if taken else "there is no column to read",
            where=typed.name,
            remedy="name the columns to read in `columns`",
        )
    return replace(typed, columns=columns)


def _types(connection: Connection, found: list[Row]) -> tuple[TypeInfo, ...]:
    return tuple(load_types(connection, {row["type_id"] for row in found}))


def _key(options: PollOptions, rows: dict[str, Row], where: str) -> tuple[Named, ...]:
    """What tells rows with the same tracking value apart."""
    primary = sorted((row for row in rows.values() if row["key_place"]), key=lambda row: int(row["key_place"]))
    chosen = [rows[name] for name in names(options.key_columns)] or primary
    if not chosen:
        raise ConfigError(
            "the table has no primary key", where=where, remedy="name columns with a unique index in `key_columns`"
        )
    if not all(row["is_required"] for row in chosen) or not _is_unique(chosen, rows):
        raise ConfigError(
            f"the key columns ({', '.join(row['name'] for row in chosen)}) do not identify a row",
            where=where,
            remedy="use NOT NULL columns that have a unique index, such as the primary key",
        )
    return tuple(Named(row["name"], row["type"]) for row in chosen)


def _is_unique(chosen: list[Row], rows: dict[str, Row]) -> bool:
    """Whether some unique index has no column outside of the chosen ones."""
    inside = {index for row in chosen for index in row["unique_indexes"]}
    outside = {index for row in rows.values() if row not in chosen for index in row["unique_indexes"]}
    return bool(inside - outside)


def _refuse_unknown(options: PollOptions, rows: dict[str, Row], where: str) -> None:
    asked = {
        "tracking_column": (options.tracking_column,),
        "key_columns": names(options.key_columns),
        "columns": names(options.columns),
        "text_columns": names(options.text_columns),
        "processed_column": names(options.processed_column),
    }
    for option, wanted in asked.items():
        if missing := set(wanted) - rows.keys():
            raise ConfigError(
                f"{option} names {', '.join(sorted(missing))}, which the table does not have",
                where=where,
                remedy=f"its columns: {', '.join(rows)}",
            )
    processed = rows.get(options.processed_column)
    if processed is not None and processed["type"] != "boolean":
        raise ConfigError(
            f"processed_column {processed['name']} is of type {processed['type']}", where=where, remedy="use a boolean"
        )
