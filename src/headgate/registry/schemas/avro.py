"""Avro schemas: read by fastavro, after a look at what it takes for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from headgate.registry.schemas.bounds import compact, read_json
from headgate.registry.schemas.problems import invalid

__all__ = ["AvroSchema", "parse_avro"]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_LISTS = {"record": "fields", "error": "fields", "enum": "symbols"}
_INNER = {"array": "items", "map": "values"}
_MOST_FIXED_BYTES = 1 << 30
_MINE = ("__fastavro_parsed", "__named_schemas")  # hints of fastavro's, which make it believe what it is given


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema whose names are complete, with all that it names."""

    root: Any
    named: Mapping[str, Mapping[str, Any]]
    given: Any  # as it was written

    def text(self, *, is_normalized: bool) -> str:
        """Return the schema without white space; normalized with full names, in the order of the alphabet."""
        return compact(self.root, is_sorted=True) if is_normalized else compact(self.given)


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema that may use the names of others, which come in an order in which each knows those before it.

    Raises InvalidSchemaError.
    """
    named: dict[str, Any] = {}
    for reference in references:
        _parse(_read(reference), named)
    given = _read(text)
    return AvroSchema(_parse(given, named), named, given)


def _read(text: str) -> Any:
    value = read_json(text) if text.lstrip()[:1] in ('"', "{", "[") else text.strip()  # a bare name is one, too
    return _checked(value)


def _parse(value: Any, named: dict[str, Any]) -> Any:
    try:
        return parse_schema(value, named, _write_hint=False, _force=True)
    except UnknownType as error:
        invalid(f"the type {error.name} is not known", "define it, or add the schema that does to references")
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        invalid(f"this is no Avro schema: {type(error).__name__}: {error}")


def _checked(value: Any) -> Any:
    """Return the schema with needless layers taken off; raise for a shape that fastavro does not ask about."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _checked_union(value)
    if not isinstance(value, dict) or "type" not in value or any(name in value for name in _MINE):
        invalid(f"{compact(value)[:100]} is no Avro schema")
    kind = value["type"]
    if isinstance(kind, dict | list) and "name" not in value:
        return _checked(kind)
    if not isinstance(kind, str):
        invalid(f"{compact(kind)[:100]} is no type of Avro")
    if kind in _INNER:
        if _INNER[kind] not in value:
            invalid(f"the {kind} has no {_INNER[kind]}")
        return value | {_INNER[kind]: _checked(value[_INNER[kind]])}
    return _checked_named(kind, value)


def _checked_union(branches: list[Any]) -> list[Any]:
    checked = [_checked(branch) for branch in branches]
    kinds = [_kind_in_union(branch) for branch in checked]
    if "union" in kinds or len(set(kinds)) != len(kinds):
        invalid(f"the union of {', '.join(kinds)} has a type twice, or a union in it")
    return checked


def _kind_in_union(branch: Any) -> str:
    if isinstance(branch, list):
        return "union"
    if isinstance(branch, str):
        return branch
    if branch["type"] in ("record", "error", "enum", "fixed"):
        space = branch.get("namespace") or ""
        name = str(branch.get("name"))
        return name if "." in name or not space else f"{space}.{name}"
    return str(branch["type"])


def _checked_named(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    _check_aliases(value)
    if kind in _LISTS and not isinstance(value.get(_LISTS[kind]), list):
        invalid(f"the {kind} {value.get('name')} has no list of {_LISTS[kind]}")
    if kind == "enum":
        symbols = value["symbols"]
        if not all(isinstance(each, str) for each in symbols) or len(set(symbols)) != len(symbols):
            invalid(f"the symbols of {value.get('name')} are not all different texts")
        if "default" in value and value["default"] not in symbols:
            invalid(f"the default of {value.get('name')} is none of its symbols")
    if kind == "fixed":
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_FIXED_BYTES:
            invalid(f"the size of {value.get('name')} is no number of bytes")
    if kind in ("record", "error"):
        return value | {"fields": _checked_fields(value)}
    return value


def _checked_fields(record: dict[str, Any]) -> list[Any]:
    fields = []
    for field in record["fields"]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            invalid(f"a field of {record.get('name')} has no name or type")
        _check_aliases(field)
        fields.append(field | {"type": _checked(field["type"])})
    names = [field["name"] for field in fields]
    if len(set(names)) != len(names):
        invalid(f"two fields of {record.get('name')} have the same name")
    return fields


def _check_aliases(value: dict[str, Any]) -> None:
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        invalid(f"the aliases of {value.get('name')} are no list of names")
