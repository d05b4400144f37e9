"""JSON Schema, drafts 4 to 2020-12: the shapes of its keywords checked, and its references resolved.

A reference leads into the same document (`#`, `#/$defs/name`, an anchor, an `$id` of it) or to a schema that the
registry was told of by that name. Nothing is fetched from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from headgate.registry.schemas.bounds import compact, read_json
from headgate.registry.schemas.problems import invalid

__all__ = ["MAPS", "Document", "Node", "parse_json_schema"]

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
SINGLE = (
    "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else",
    "unevaluatedProperties", "unevaluatedItems", "contentSchema",
)  # fmt: skip
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_COUNTS = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
_FLAGGED = ("exclusiveMinimum", "exclusiveMaximum")  # true or false in draft 4, numbers since


class Node(NamedTuple):
    """A schema within its document, where its references mean something."""

    document: Document
    value: Any


@dataclass(eq=False, slots=True)
class Document:
    """One JSON Schema with the others that it may refer to by name."""

    root: Any
    named: Mapping[str, Document] = field(default_factory=dict)
    _places: dict[str, Any] = field(default_factory=dict)  # by `$id` and by anchor

    def __post_init__(self) -> None:
        for value in (each for each in _walk(self.root) if isinstance(each, dict)):
            for key in ("$id", "id", "$anchor", "$dynamicAnchor"):
                if isinstance(value.get(key), str):
                    name = value[key] if key in ("$id", "id") else f"#{value[key]}"
                    self._places.setdefault(name.removesuffix("#") or "#", value)

    def text(self, *, is_normalized: bool) -> str:
        """Return the schema without white space; normalized with its names in the order of the alphabet."""
        return compact(self.root, is_sorted=is_normalized)

    def node(self) -> Node:
        return Node(self, self.root)

    def resolve(self, reference: str) -> Node | None:
        """Return what a reference leads to; None if it leads nowhere that is known."""
        base, _, fragment = reference.partition("#")
        if reference in self._places:
            return Node(self, self._places[reference])
        if base in self.named:
            return self.named[base].resolve(f"#{fragment}")
        start = self._places.get(base) if base else self.root
        return None if start is None else self._at(start, fragment)

    def _at(self, value: Any, pointer: str) -> Node | None:
        if not pointer:
            return Node(self, value)
        if not pointer.startswith("/"):
            return None
        for part in pointer[1:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdecimal() and len(name) < 6 and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        return Node(self, value) if isinstance(value, dict | bool) else None


def parse_json_schema(text: str, references: Sequence[tuple[str, str]] = ()) -> Document:
    """Parse a schema with those that it refers to, as names and texts; each knows those before it.

    Raises InvalidSchemaError.
    """
    named: dict[str, Document] = {}
    for name, other in references:
        named[name] = _document(other, dict(named))
    return _document(text, named)


def _document(text: str, named: Mapping[str, Document]) -> Document:
    root = read_json(text)
    for value in _walk(root):
        if isinstance(value, dict):
            _check_keywords(value)
        elif not isinstance(value, bool):
            invalid(f"{compact(value)[:100]} stands where a schema should be: an object, true or false")
    document = Document(root, named)
    _check_references(document)
    return document


def _check_references(document: Document) -> None:
    """What a reference leads to is a schema, wherever it stands; and none leads back to itself at the same place."""
    seen: set[int] = set()
    waiting = [document.node()]
    while waiting:
        node = waiting.pop()
        if isinstance(node.value, bool) or id(node.value) in seen:
            continue
        seen.add(id(node.value))
        _check_keywords(node.value)
        waiting += [Node(node.document, each) for each in inner_schemas(node.value)]
        if target := _target(node):
            waiting.append(target)
    _check_ends(document)


def _target(node: Node) -> Node | None:
    for key in ("$dynamicRef", "$recursiveRef", "$ref"):
        if not isinstance(node.value.get(key, ""), str):
            invalid(f"{key} is no text")
    reference = node.value.get("$ref")
    if reference is None or reference.startswith("http://json-schema.org/"):
        return None
    target = node.document.resolve(reference)
    if target is None:
        invalid(f"the reference {reference} leads nowhere", "define it in the schema, or add it to references")
    return target


def _check_ends(document: Document) -> None:
    """A validator would never come to an end of a schema that asks for itself before it looks into the value."""
    done: set[int] = set()
    for start in _walk(document.root):
        trail: dict[int, list[Node]] = {}
        node: Node | None = Node(document, start)
        while node is not None:
            key = id(node.value)
            if key in trail:
                invalid("a reference leads back to itself")
            if key not in done and isinstance(node.value, dict):
                trail[key] = list(_in_place(node))
            while trail and not trail[next(reversed(trail))]:
                done.add(trail.popitem()[0])
            node = trail[next(reversed(trail))].pop() if trail else None


def _in_place(node: Node) -> Iterator[Node]:
    """Yield the schemas that a value is compared with where this one is."""
    for key in ("not", "if", "then", "else"):
        if key in node.value:
            yield Node(node.document, node.value[key])
    for key in ("allOf", "anyOf", "oneOf"):
        yield from (Node(node.document, each) for each in node.value.get(key, ()))
    yield from (Node(node.document, each) for each in node.value.get("dependentSchemas", {}).values())
    if target := _target(node):
        yield target


def inner_schemas(value: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that stand directly in this one."""
    for key in SINGLE:
        if key in value:
            yield value[key]
    for key in SEVERAL:
        yield from value.get(key, ())
    items = value.get("items", ())
    yield from items if isinstance(items, list | tuple) else (items,)
    for key in MAPS:
        yield from value.get(key, {}).values()
    yield from (each for each in value.get("dependencies", {}).values() if not isinstance(each, list))


def _walk(root: Any) -> Iterator[Any]:
    """Yield a schema and all that stand in it."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(inner_schemas(value))


def _check_keywords(value: dict[str, Any]) -> None:
    _check_type(value)
    for key in SEVERAL:
        _check(key, value, isinstance(value.get(key, []), list))
    for key in (*MAPS, "dependencies", "dependentRequired"):
        _check(key, value, isinstance(value.get(key, {}), dict))
    _check("enum", value, isinstance(value.get("enum", []), list))
    if not isinstance(value.get("required", False), bool):  # draft 3 had it beside each property
        _check("required", value, _is_names(value["required"]))
    for names in value.get("dependentRequired", {}).values():
        _check("dependentRequired", value, _is_names(names))
    for names in value.get("dependencies", {}).values():
        _check("dependencies", value, _is_names(names) or isinstance(names, dict | bool))
    for key in _COUNTS:
        _check(key, value, _is_number(value.get(key, 0)) and value.get(key, 0) >= 0)
    for key in ("minimum", "maximum"):
        _check(key, value, _is_number(value.get(key, 0)))
    for key in _FLAGGED:
        _check(key, value, _is_number(value.get(key, 0)) or isinstance(value.get(key), bool))
    _check("multipleOf", value, _is_number(value.get("multipleOf", 1)) and value.get("multipleOf", 1) > 0)
    _check("pattern", value, isinstance(value.get("pattern", ""), str))


def _check_type(value: dict[str, Any]) -> None:
    types = value.get("type", [])
    if isinstance(types, str):
        types = [types]
    _check("type", value, isinstance(types, list) and all(isinstance(each, str) and each in TYPES for each in types))


def _check(key: str, value: dict[str, Any], is_right: bool) -> None:
    if not is_right:
        invalid(f"{key} cannot be {compact(value.get(key))[:100]}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
