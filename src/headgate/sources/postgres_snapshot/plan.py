"""What to read of a table: the columns and rows that the stream carries, in ranges of about the same size.

    plan_table(url, "public", "users", ("shop",)).ranges(4) -> TableRange ...

A range is some blocks of a table's file, found by `ctid` (PostgreSQL 14 reads such a range without looking at the
rest). Rows keep their place while a snapshot sees them, so each is in exactly one range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from headgate.model import ConfigError, UsageError
from headgate.postgres import Connection, postgres_error
from headgate.postgres.catalog import load_types
from headgate.sources.postgres_snapshot.connections import READERS_LOCK_TIMEOUT, connect_pinned
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeInfo

__all__ = ["Leaf", "SnapshotTable", "TableRange", "plan_table", "quoted_name", "table_name"]

LEAST_BLOCKS = 1024  # 8 MiB: less is not worth a connection
_GENERATED_PUBLISHED = 180000  # since this version, and the view lists them then
_TABLE, _PARTITIONED = "r", "p"
_NAMES = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that has rows of its own: the table that was asked for, or one of its partitions."""

    schema: str
    name: str
    blocks: int


@dataclass(frozen=True, slots=True)
class TableRange:
    """Blocks of a leaf: from `first` (0: all from the begin) to before `end` (None: to the end, wherever that is)."""

    number: int
    leaf: Leaf
    first: int
    end: int | None


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A published table. `relation` is what the stream says of it. Goes to the executors."""

    relation: Relation
    types: tuple[TypeInfo, ...]  # those of its columns that are not built in, and what they are made of
    row_filter: str  # SQL, or nothing
    leaves: tuple[Leaf, ...]

    def ranges(self, count: int, least_blocks: int = LEAST_BLOCKS) -> list[TableRange]:
        """About `count` ranges of the same size; fewer for a small table, at least one for each leaf."""
        blocks = sum(leaf.blocks for leaf in self.leaves)
        size = max(blocks / max(count, 1), least_blocks, 1)
        edges = [(leaf, first, end) for leaf in self.leaves for first, end in _split(leaf.blocks, size)]
        return [TableRange(number, *edge) for number, edge in enumerate(edges)]

    def copy_statement(self, part: TableRange) -> sql.Composed:
        """What reads a range. A partition has the root's columns, but maybe in another order."""
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.relation.columns)
        bounds = [sql.SQL("ctid >= {}").format(f"({part.first},0)")] if part.first else []
        bounds += [sql.SQL("ctid < {}").format(f"({part.end},0)")] if part.end is not None else []
        # The server made this text from its own catalog.
        bounds += [sql.SQL("({})").format(sql.SQL(self.row_filter))] if self.row_filter else []
        where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(bounds)) if bounds else sql.SQL("")
        leaf = sql.Identifier(part.leaf.schema, part.leaf.name)
        return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT").format(columns, leaf, where)


def _split(blocks: int, size: float) -> Iterator[tuple[int, int | None]]:
    """Ranges of about `size` blocks that differ by one at most. The table may have grown, so the last has no end."""
    count = max(round(blocks / size), 1)
    for number in range(count):
        yield blocks * number // count, None if number == count - 1 else blocks * (number + 1) // count


def table_name(text: str) -> tuple[str, str]:
    """`schema.table`, or a table of `public`. A name with a dot in it stands in quotes: `shop."odd.name"`."""
    names = [quoted.replace('""', '"') or plain for quoted, plain in _NAMES.findall(text)]
    if not 1 <= len(names) <= 2:
        raise UsageError(f"not a table: {text!r}", remedy='write users, shop.users or shop."odd.name"')
    return (names[0], names[1]) if len(names) == 2 else ("public", names[0])


def quoted_name(schema: str, table: str) -> str:
    """What `table_name` reads."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in (schema, table))


def plan_table(url: str, schema: str, table: str, publications: Sequence[str]) -> SnapshotTable:
    """The table as it is now. Hold a point meanwhile: that keeps its shape."""
    try:
        with connect_pinned(url, "headgate snapshot") as connection:
            connection.execute(READERS_LOCK_TIMEOUT)
            return _planned(connection, schema, table, publications)
    except psycopg.Error as error:
        raise postgres_error(error, f"{schema}.{table}") from None


def _planned(connection: Connection, schema: str, table: str, publications: Sequence[str]) -> SnapshotTable:
    found = _query(connection, "table", schema=schema, table=table, publications=list(publications))
    row = _checked(found[0] if found else None, schema, table, publications)
    columns = _columns(connection, row, f"{schema}.{table}")
    identity = ReplicaIdentity(row["identity"])
    relation = Relation(row["oid"], schema, table, identity, columns)
    types = tuple(load_types(connection, {column.type_id for column in columns}))
    leaves = [_leaf(each, schema, table) for each in _query(connection, "leaves", relation=row["oid"])]
    return SnapshotTable(relation, types, _row_filter(row["published"]), tuple(leaves))


def _query(connection: Connection, name: str, **parameters: Any) -> list[dict[str, Any]]:
    query = resources.files("headgate.sources.postgres_snapshot").joinpath(f"{name}.sql").read_bytes()
    return connection.execute(query, parameters).fetchall()


def _checked(row: dict[str, Any] | None, schema: str, table: str, publications: Sequence[str]) -> dict[str, Any]:
    names, where = ", ".join(publications), f"{schema}.{table}"
    if row is None:
        raise ConfigError(
            f"the publication {names} has no table {where}", where=where, remedy="correct the name of the table"
        )
    if row["kind"] not in (_TABLE, _PARTITIONED):
        raise ConfigError(
            f"{where} is {_KINDS.get(row['kind'], 'no table')}, which has no changes of its own",
            where=where,
            remedy="ask for the tables behind it",
        )
    if missing := set(publications) - set(row["publications"]):
        raise ConfigError(
            f"there is no publication {', '.join(sorted(missing))}",
            where=where,
            remedy="correct the name, or create it; see: headgate check",
        )
    if not row["published"]:
        raise ConfigError(
            f"the publication {names} has no table {where}", where=where, remedy=_publish(row["kind"], where, names)
        )
    return row


def _publish(kind: str, table: str, publications: str) -> str:
    publication = publications.split(",")[0]
    if kind == _PARTITIONED:
        return (
            f"its changes come under its partitions' names: ask for those, or "
            f"ALTER PUBLICATION {publication} SET (publish_via_partition_root);"
        )
    return f"ALTER PUBLICATION {publication} ADD TABLE {table}; or, if it is a partition, ask for its root"


def _columns(connection: Connection, row: Mapping[str, Any], where: str) -> tuple[RelationColumn, ...]:
    """Return the columns that pgoutput would pick."""
    lists = {tuple(each["attnames"]) if each.get("attnames") is not None else None for each in row["published"]}
    if len(lists) > 1:
        raise ConfigError(
            "the publications have different columns of the table, which PostgreSQL does not allow",
            where=where,
            remedy="give it the same list of columns in all of them; see: ALTER PUBLICATION ... SET TABLE",
        )
    (listed,) = lists
    generated_too = connection.info.server_version >= _GENERATED_PUBLISHED
    return tuple(
        RelationColumn(each["is_key"], each["name"], each["type_id"], each["typmod"])
        for each in _query(connection, "columns", relation=row["oid"])
        if (each["name"] in listed and (generated_too or not each["generated"]) if listed else not each["generated"])
    )


def _row_filter(published: Sequence[Mapping[str, Any]]) -> str:
    """A row is published if one of the publications wants it."""
    filters = sorted({each.get("rowfilter") or "" for each in published})
    return "" if "" in filters else " OR ".join(f"({each})" for each in filters)


def _leaf(row: Mapping[str, Any], schema: str, table: str) -> Leaf:
    if row["kind"] != _TABLE:
        raise ConfigError(
            f"its partition {row['schema']}.{row['name']} is {_KINDS.get(row['kind'], 'no table')}, "
            "whose changes PostgreSQL does not publish",
            where=f"{schema}.{table}",
            remedy="detach the partition, or ask for the other partitions one by one",
        )
    return Leaf(row["schema"], row["name"], row["blocks"])
