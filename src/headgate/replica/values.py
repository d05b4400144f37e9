"""How a column's values travel: what they are on the wire, and what keeps them in a target without a loss."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from headgate.consume import Column, Schema
from headgate.replica.fold import Row

__all__ = ["Form", "base_kind", "base_type", "comparable", "form_of", "forms_of", "tree_to_text"]

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
}


def base_type(column: Column) -> str:
    """The type's name without its modifier; of a domain, that of what it is made of."""
    return _MODIFIER.sub("", column.base_type or column.type)


def base_kind(column: Column) -> str:
    """The type's kind; of a domain, that of what it is made of. An older bridge does not say it."""
    if column.kind != "domain":
        return column.kind
    return column.base_kind or ("array" if base_type(column).endswith("[]") else "base")


def form_of(column: Column) -> Form:
    kind, name = base_kind(column), base_type(column)
    if kind in ("array", "composite"):
        return Form.TREE
    if kind != "base":
        return Form.TEXT
    return Form.TREE if name.rpartition(".")[2] == "hstore" else _FORMS.get(name, Form.TEXT)


def forms_of(schema: Schema) -> list[Form]:
    return [form_of(column) for column in schema.sent]


def tree_to_text(value: Any) -> Any:
    """A value of the form TREE as JSON text, as an event in JSON has it: NaN and infinities are strings, bytes base64.

    What a list cannot say, such as an array with bounds of its own, is text on the wire, and a string in JSON.
    """
    if value is None:
        return None
    text = msgspec.json.encode(value).decode()
    # msgspec writes null for what JSON has no number for.
    return msgspec.json.encode(_finite(value)).decode() if "null" in text else text


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def comparable(schema: Schema) -> Callable[[Row], Row]:
    """What makes rows of the wire and rows of a target the same: trees as their text."""
    trees = [number for number, form in enumerate(forms_of(schema)) if form is Form.TREE]
    if not trees:
        return lambda row: row

    def same(row: Row) -> Row:
        values = list(row)
        for number in trees:
            values[number] = tree_to_text(values[number])
        return tuple(values)

    return same
