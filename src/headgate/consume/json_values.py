"""Rows of an event in JSON -> the values that MessagePack would have carried.

JSON has no bytes, no special floats, and no text that is JSON itself: the rule of a column says what a string or an
object stands for. The rules are those of `headgate.wire.envelope`; a column that has none is read by its type's name.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headgate.consume.loose import raw_items, raw_members, spaced_items, spaced_members
from headgate.consume.schema import Column, Schema
from headgate.wire.pgtypes import spliced_text

__all__ = ["RowReader"]

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_RULES = {"json": "json", "jsonb": "json", "bytea": "bytea", "real": "float", "double precision": "float"}

_Read = Callable[[bytes], Any]


class RowReader:
    """Reads rows of one shape."""

    def __init__(self, schema: Schema) -> None:
        rules = {column.name: _rule(column) for column in schema.columns}
        self._read = _composite_reader(rules)

    def __call__(self, raw: bytes) -> dict[str, Any]:
        """The row. What is no object raises `msgspec.DecodeError`."""
        row: dict[str, Any] = self._read(raw)
        return row


def _rule(column: Column) -> Any:
    """What the bridge says; of a column that its catalog has no more, what the names tell."""
    if column.rule is not None:
        return column.rule
    if column.fields:
        return {field.name: _named(field.type) for field in column.fields}
    return _named(column.base_type or column.type)


def _named(type_name: str) -> Any:
    element = type_name.removesuffix("[]")
    rule = _RULES.get(element, "text")
    return rule if element == type_name else [rule]


def _reader(rule: Any) -> _Read:
    if isinstance(rule, list):
        return _list_reader(rule)
    if not isinstance(rule, dict):
        return _SCALARS.get(rule, msgspec.json.decode)
    read = _composite_reader(rule)
    # A composite whose fields the catalog did not know is text.
    return lambda raw: read(raw) if raw[:1] == b"{" else msgspec.json.decode(raw)


def _composite_reader(rules: Mapping[str, Any]) -> _Read:
    readers = {name: _reader(rule) for name, rule in rules.items()}
    members = spaced_members if any(map(_has_json, rules.values())) else raw_members
    decode = msgspec.json.decode

    def values(raw: bytes) -> Any:
        return {name: readers.get(name, decode)(value) for name, value in members(raw).items()}

    return values


def _list_reader(rule: list[Any]) -> _Read:
    """Lists in the list are dimensions, or elements that are arrays themselves (by a domain): they read the same."""
    while isinstance(rule[0], list):
        rule = rule[0]
    read = _reader(rule[0])
    items = spaced_items if _has_json(rule) else raw_items

    def values(raw: bytes) -> Any:
        if raw[:1] != b"[":
            return msgspec.json.decode(raw)  # NULL, or an array with other bounds as text
        return [values(item) if item[:1] == b"[" else read(item) for item in items(raw)]

    return values


def _has_json(rule: Any) -> bool:
    if isinstance(rule, dict):
        return any(map(_has_json, rule.values()))
    return _has_json(rule[0]) if isinstance(rule, list) else rule == "json"


def _json(raw: bytes) -> str | None:
    return None if raw == b"null" else spliced_text(raw.decode())


def _bytea(raw: bytes) -> Any:
    value = msgspec.json.decode(raw)
    # An array with other bounds, inside another array, is text: no base64 begins like that.
    return base64.b64decode(value) if isinstance(value, str) and value[:1] != "[" else value


def _float(raw: bytes) -> Any:
    value = msgspec.json.decode(raw)
    return _NUMBERS.get(value, value) if isinstance(value, str) else None if value is None else float(value)


_SCALARS: dict[str, _Read] = {"json": _json, "bytea": _bytea, "float": _float}
