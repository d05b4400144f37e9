"""Descriptions of tables: what the stream says of a shape, and what the catalog knows besides.

The stream is exact: a Relation message stands right before the first row of its shape. The catalog knows more (types by
name, defaults, what may be NULL), but only as things are now. So a description has the stream's columns, and the
catalog's details where the catalog still has the same column.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import Any

from headgate.sources.postgres_cdc.slot import Connection
from headgate.wire.envelope import schema_version
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity

__all__ = ["Description", "describe_relation", "describe_tables"]

Description = dict[str, Any]

_TABLE_FIELDS = ("relation_id", "schema", "table")
_COLUMN_FIELDS = (
    "name", "position", "type", "type_name", "type_schema", "type_oid", "typmod", "kind", "nullable", "default",
    "generated", "identity", "key", "replicated",
)  # fmt: skip
_KIND_FIELDS = ("element", "labels", "base_type", "fields")  # where the kind of the type has them
_IDENTITIES = {
    ReplicaIdentity.DEFAULT: "default",
    ReplicaIdentity.FULL: "full",
    ReplicaIdentity.INDEX: "index",
    ReplicaIdentity.NOTHING: "nothing",
}


def describe_tables(connection: Connection, publications: Sequence[str]) -> list[Description]:
    """Every published table as the catalog has it now."""
    query = resources.files("headgate.sources.postgres_cdc").joinpath("describe.sql").read_bytes()
    rows = connection.execute(query, {"publications": list(publications)}).fetchall()
    return [_table(list(group)) for _, group in groupby(rows, key=lambda row: row["relation_id"])]


def describe_relation(connection: Connection, publications: Sequence[str], relation: Relation) -> Description:
    """A shape that the stream has shown."""
    version = schema_version(relation)
    now = next((d for d in describe_tables(connection, publications) if d["relation_id"] == relation.relation_id), None)
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
    return {name: row[name] for name in _COLUMN_FIELDS} | {n: row[n] for n in _KIND_FIELDS if row[n] is not None}


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
