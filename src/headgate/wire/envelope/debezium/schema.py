"""Kafka Connect's schemas of events, which stand in every event if consumers want them (`schemas_enable`).

Specification: Debezium documentation, PostgreSQL connector, "Data change events".
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "HEARTBEAT_SCHEMA",
    "Schema",
    "envelope_schema",
    "key_schema",
    "message_key_schema",
    "message_schema",
    "row_schema",
]

Schema = dict[str, Any]

_SOURCE_FIELDS = (
    ("version", "string", False), ("connector", "string", False), ("name", "string", False), ("ts_ms", "int64", False),
    ("snapshot", "string", True), ("db", "string", False), ("sequence", "string", True), ("ts_us", "int64", True),
    ("ts_ns", "int64", True), ("schema", "string", False), ("table", "string", False), ("txId", "int64", True),
    ("lsn", "int64", True), ("xmin", "int64", True),
)  # fmt: skip
_SNAPSHOT: Schema = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    "default": "false",
    "field": "snapshot",
}
_NO_NAME = re.compile(r"[^A-Za-z0-9_.]")


def _field(name: str, kind: str, *, optional: bool) -> Schema:
    return {"type": kind, "optional": optional, "field": name}


def _struct(fields: list[Schema], *, optional: bool, name: str, field: str) -> Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, "version": 1, "field": field}


_SOURCE = _struct(
    [_SNAPSHOT if name == "snapshot" else _field(name, kind, optional=each) for name, kind, each in _SOURCE_FIELDS],
    optional=False,
    name="io.debezium.connector.postgresql.Source",
    field="source",
)
_TRANSACTION = _struct(
    [
        _field("id", "string", optional=False),
        _field("total_order", "int64", optional=False),
        _field("data_collection_order", "int64", optional=False),
    ],
    optional=True,
    name="event.block",
    field="transaction",
)
_OP = _field("op", "string", optional=False)
_TIMES = [_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")]


def envelope_schema(name: str, columns: list[Schema]) -> Schema:
    """The schema of a table's events. `name` is prefix, schema and table; odd characters in it become `_`."""
    name = _NO_NAME.sub("_", name)
    row = {"type": "struct", "fields": columns, "optional": True, "name": f"{name}.Value"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, _SOURCE, _TRANSACTION, _OP, *_TIMES]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope", "version": 2}


def row_schema(name: str, columns: list[Schema]) -> Schema:
    """The schema of a table's rows, where a message is one."""
    return {"type": "struct", "fields": columns, "optional": False, "name": f"{_NO_NAME.sub('_', name)}.Value"}


def key_schema(name: str, columns: list[Schema]) -> Schema:
    """The schema of the keys of a table's messages."""
    return {"type": "struct", "fields": columns, "optional": False, "name": f"{_NO_NAME.sub('_', name)}.Key"}


def message_schema(binary_mode: str) -> Schema:
    """The schema of a logical message."""
    content = _field("content", "bytes" if binary_mode == "bytes" else "string", optional=True)
    message = _struct(
        [_field("prefix", "string", optional=True), content],
        optional=False,
        name="io.debezium.connector.postgresql.Message",
        field="message",
    )
    fields = [_OP, _TIMES[0], _SOURCE, _TRANSACTION, message]
    name = "io.debezium.connector.postgresql.MessageValue"
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}


def message_key_schema(*, is_heartbeat: bool) -> Schema:
    """The schema of the keys of logical messages, or of heartbeats."""
    name = (
        "io.debezium.connector.common.ServerNameKey" if is_heartbeat else "io.debezium.connector.postgresql.MessageKey"
    )
    field = _field("serverName" if is_heartbeat else "prefix", "string", optional=not is_heartbeat)
    return {"type": "struct", "fields": [field], "optional": False, "name": name, "version": 1}


HEARTBEAT_SCHEMA: Schema = {
    "type": "struct",
    "fields": [_field("ts_ms", "int64", optional=False)],
    "optional": False,
    "name": "io.debezium.connector.common.Heartbeat",
    "version": 1,
}
