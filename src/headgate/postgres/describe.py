"""Descriptions of tables: what the stream says of a shape, and what the catalog knows besides.

The stream is exact: a Relation message stands right before the first row of its shape. The catalog knows more (types by
name, defaults, what may be NULL), but only as things are now. So a description has the stream's columns, and the
catalog's details where the catalog still has the same column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Any, NamedTuple

from headgate.postgres.catalog import FIRST_CUSTOM_TYPE, load_types
from headgate.postgres.connect import Connection
from headgate.wire.envelope import schema_version
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeCatalog

__all__ = [
    "Description",
    "Published",
    "describe_published",
    "describe_relations",
    "describe_tables",
    "published_tables",
]

Description = dict[str, Any]

_TABLE_FIELDS = ("relation_id", "schema", "table")
_COLUMN_FIELDS = (
    "name", "position", "type", "type_name", "type_schema", "type_oid", "typmod", "kind", "nullable", "default",
    "generated", "identity", "key", "replicated",
)  # fmt: skip
_KIND_FIELDS = ("element", "labels", "base_type", "base_kind", "fields", "rule")  # where the kind of the type has them
_MADE_OF_OTHERS = ("array", "composite", "domain")
_IDENTITIES = {
    ReplicaIdentity.DEFAULT: "default",
    ReplicaIdentity.FULL: "full",
    ReplicaIdentity.INDEX: "index",
    ReplicaIdentity.NOTHING: "nothing",
}


class Published(NamedTuple):
    """A table of a publication. `names` are the columns that it sends, as JSON, or None for all."""

    relation_id: int
    schema: str
    table: str
    names: str | None
    membership: str
    shape: str = ""

    @property
    def name(self) -> tuple[str, str]:
        return self.schema, self.table


def published_tables(connection: Connection, publications: Sequence[str]) -> list[Published]:
    """The tables as their rows are sent. It takes a while where there are thousands."""
    return [Published(**row) for row in connection.execute(_query("published"), {"publications": list(publications)})]


def describe_published(connection: Connection, tables: Sequence[Published]) -> list[Description]:
    """Published tables as the catalog has them now; one that is gone meanwhile is left out."""
    return _described(connection, {each.relation_id: each.names for each in tables})


def describe_tables(connection: Connection, publications: Sequence[str]) -> list[Description]:
    """Every published table as the catalog has it now."""
    return describe_published(connection, published_tables(connection, publications))


def describe_relations(connection: Connection, relations: Sequence[Relation]) -> list[Description]:
    """Shapes that the stream has shown."""
    names = {each.relation_id: json.dumps([column.name for column in each.columns]) for each in relations}
    now = {each["relation_id"]: each for each in _described(connection, names)}
    return [_shown(connection, each, now.get(each.relation_id)) for each in relations]


def _described(connection: Connection, names: Mapping[int, str | None]) -> list[Description]:
    values = {"relations": list(names), "names": list(names.values())}
    rows = connection.execute(_query("describe"), values).fetchall()
    _add_rules(connection, rows)
    return [_table(list(group)) for _, group in groupby(rows, key=lambda row: row["relation_id"])]


def _add_rules(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """How values of types that are made of others are read: an event in JSON does not tell bytes from text."""
    made = [row for row in rows if row["kind"] in _MADE_OF_OTHERS]
    custom = {row["type_oid"] for row in made if row["type_oid"] >= FIRST_CUSTOM_TYPE}
    types = TypeCatalog(load_types(connection, custom) if custom else ())
    for row in made:
        row["rule"] = types.codec(row["type_oid"]).rule


def _query(name: str) -> bytes:
    return resources.files("headgate.postgres").joinpath(f"{name}.sql").read_bytes()


def _shown(connection: Connection, relation: Relation, now: Description | None) -> Description:
    """What the stream says, with what the catalog still knows of it."""
    version = schema_version(relation)
    if now is not None and now["version"] == version:
        return now
    known = {(c["name"], c["type_oid"]): c for c in now["columns"]} if now else {}
    columns = [
        {
            **(known.get((column.name, column.type_id)) or _bare(connection, column)),
            "position": number,
            "key": column.is_key,
        }
        for number, column in enumerate(relation.columns, 1)
    ]
    return {
        "relation_id": relation.relation_id,
        "schema": relation.schema,
        "table": relation.name,
        "version": version,
        "lsn": "",
        "replica_identity": _IDENTITIES[relation.identity],
        "primary_key": now["primary_key"] if now else [],
        "key": [column.name for column in relation.columns if column.is_key],
        "columns": columns,
    }


def _table(rows: list[dict[str, Any]]) -> Description:
    first = rows[0]
    identity = ReplicaIdentity(first["identity"])
    columns = [_column(row) for row in rows]
    relation = Relation(
        first["relation_id"],
        first["schema"],
        first["table"],
        identity,
        tuple(
            RelationColumn(column["key"], column["name"], column["type_oid"], column["typmod"])
            for column in columns
            if column["replicated"]
        ),
    )
    primary = sorted((row["key_place"], row["name"]) for row in rows if row["key_place"] is not None)
    return {
        **{name: first[name] for name in _TABLE_FIELDS},
        "version": schema_version(relation),
        "lsn": "",
        "replica_identity": _IDENTITIES[identity],
        "primary_key": [name for _, name in primary],
        "key": [column["name"] for column in columns if column["key"]],
        "columns": columns,
    }


def _column(row: dict[str, Any]) -> dict[str, Any]:
    row = {**row, "identity": row["identity_kind"]}
    return {name: row[name] for name in _COLUMN_FIELDS} | {n: row[n] for n in _KIND_FIELDS if row.get(n) is not None}


def _bare(connection: Connection, column: RelationColumn) -> dict[str, Any]:
    """A column that the catalog has no more."""
    row = connection.execute("select format_type(%s, %s) as type", [column.type_id, column.type_modifier]).fetchone()
    assert row is not None
    known: dict[str, Any] = dict.fromkeys(_COLUMN_FIELDS)
    return known | {
        "name": column.name,
        "type": row["type"],
        "type_oid": column.type_id,
        "typmod": column.type_modifier,
        "kind": "base",
        "nullable": True,
        "replicated": True,
    }
