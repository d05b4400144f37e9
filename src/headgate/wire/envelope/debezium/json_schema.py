"""Kafka Connect's schemas as JSON Schema, which a schema registry compares and consumers check messages by.

They are what Confluent's JsonSchemaConverter writes: Connect's own types stand beside those of JSON. Models are closed,
so a column that is added goes with what was there before; labels of an enum are left out, because more may be added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["framed", "json_schema"]

Schema = dict[str, Any]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_NOT_NUMBERS: Schema = {"enum": ["NaN", "Infinity", "-Infinity"]}
_PLAIN: dict[str, Schema] = {
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "connect.type": "bytes"},
    "int16": {"type": "integer", "connect.type": "int16"},
    "int32": {"type": "integer", "connect.type": "int32"},
    "int64": {"type": "integer", "connect.type": "int64"},
    "float": {"anyOf": [{"type": "number", "connect.type": "float32"}, _NOT_NUMBERS]},
    "double": {"anyOf": [{"type": "number", "connect.type": "float64"}, _NOT_NUMBERS]},
}
# Too short to lie out of line. A `double` may be a numeric, which is not.
_ALWAYS_SENT = frozenset({"boolean", "int16", "int32", "int64", "float"})
_MAGIC = b"\0"


def json_schema(schema: Mapping[str, Any]) -> str:
    """Return the JSON Schema of what a schema of Connect describes."""
    return json.dumps({"$schema": _DRAFT, **_of(schema)}, ensure_ascii=False, separators=(",", ":"))


def framed(schema_id: int) -> bytes:
    """Return what Confluent's serializers put before a message: a zero byte and the id of its schema."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def _of(schema: Mapping[str, Any]) -> Schema:
    kind = schema["type"]
    named: Schema = {"connect.name": schema["name"]} if "name" in schema and kind != "struct" else {}
    if kind == "struct":
        title = {"title": schema["name"]} if "name" in schema else {}
        fields = {field["field"]: _field(field) for field in schema["fields"]}
        return {"type": "object", **title, "properties": fields, "additionalProperties": False}
    if kind == "array":
        # Arrays have as many dimensions as each value wants, and are texts where they begin elsewhere than at 1.
        items = {"anyOf": [_or_null(schema["items"]), {"type": "array"}]}
        return {"anyOf": [{"type": "array", "items": items}, {"type": "string"}]}
    if kind == "map":
        return {"type": "object", "connect.type": "map", "additionalProperties": _or_null(schema["values"])}
    return _PLAIN[kind] | named


def _field(schema: Mapping[str, Any]) -> Schema:
    """A value that was not sent may be null although its column is NOT NULL."""
    may_lack = schema["type"] not in _ALWAYS_SENT
    return _or_null({**schema, "optional": schema["optional"] or may_lack})


def _or_null(schema: Mapping[str, Any]) -> Schema:
    return {"oneOf": [{"type": "null"}, _of(schema)]} if schema.get("optional") else _of(schema)
