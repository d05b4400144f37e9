"""How a column's values travel: what they are on the wire, and what keeps them in a target without a loss."""

from __future__ import annotations

import enum
import re
from typing import Any

import msgspec

from headgate.consume import Column, Schema

__all__ = ["Form", "base_type", "form_of", "forms_of", "tree_from_text", "tree_to_text"]

_MODIFIER = re.compile(r"\([^)]*\)")


class Form(enum.Enum):
    """What a value is in MessagePack."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    BYTES = "bytes"
    TEXT = "text"
    TREE = "tree"  # a list or a map: arrays, composites, hstore


_FORMS = {
    "smallint": Form.INT,
    "integer": Form.INT,
    "bigint": Form.INT,
    "oid": Form.INT,
    "real": Form.FLOAT,
    "double precision": Form.FLOAT,
    "boolean": Form.BOOL,
    "bytea": Form.BYTES,
    "hstore": Form.TREE,
}


def base_type(column: Column) -> str:
    """The type's name without its modifier; of a domain, that of what it is made of."""
    return _MODIFIER.sub("", column.base_type or column.type)


def form_of(column: Column) -> Form:
    name = base_type(column)
    if column.kind in ("array", "composite") or name.endswith("[]"):
        return Form.TREE
    return _FORMS.get(name, Form.TEXT) if column.kind in ("base", "domain") else Form.TEXT


def forms_of(schema: Schema) -> list[Form]:
    return [form_of(column) for column in schema.sent]


def tree_to_text(value: Any) -> Any:
    """A list or a map as JSON text. An array with bounds of its own is text already."""
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def tree_from_text(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
