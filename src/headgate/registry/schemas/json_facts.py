"""What is known of a JSON value that satisfies several schemas at once.

Each answer may say too little, never too much: what follows from patterns, conditions and formats is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from headgate.registry.schemas.bounds import same_json
from headgate.registry.schemas.json_schema import TYPES, Node

__all__ = [
    "count_bound", "exact", "forbids", "item", "lower", "multiple", "other_items", "other_properties", "prefix_length",
    "property_named", "required", "type_of", "types_of", "types_said", "upper", "values_of",
]  # fmt: skip

Bound = tuple[Fraction, int]  # the number, and 1 if it is excluded itself


def exact(number: float) -> Fraction:
    """The number that was written: 0.1 is a tenth."""
    return Fraction(str(number))


def types_said(node: Node) -> frozenset[str] | None:
    """With `number` stands `integer`, which is a part of it."""
    said = node.value.get("type")
    if said is None:
        return None
    names = {said} if isinstance(said, str) else set(said)
    return frozenset(names | ({"integer"} if "number" in names else set()))


def types_of(nodes: Sequence[Node]) -> frozenset[str]:
    """The types that are left."""
    left = frozenset(TYPES)
    for node in nodes:
        said = types_said(node)
        left = left if said is None else left & said
    values = values_of(nodes)
    return left if values is None else left & {type_of(value) for value in values}


def type_of(value: Any) -> str:
    """The type of a value. `number` stands for those that are not whole, here and wherever types are compared."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def values_of(nodes: Sequence[Node]) -> list[Any] | None:
    """The values that are left where they are listed; None where they are not."""
    left: list[Any] | None = None
    for node in nodes:
        lists = [node.value["enum"]] if "enum" in node.value else []
        lists += [[node.value["const"]]] if "const" in node.value else []
        for values in lists:
            left = values if left is None else [each for each in left if any(same_json(each, v) for v in values)]
    return left


def lower(nodes: Iterable[Node]) -> Bound | None:
    """The least number there may be."""
    return max((each for node in nodes for each in _bounds(node, "minimum", "exclusiveMinimum")), default=None)


def upper(nodes: Iterable[Node]) -> Bound | None:
    """The greatest number there may be."""
    bounds = [each for node in nodes for each in _bounds(node, "maximum", "exclusiveMaximum")]
    return min(bounds, key=lambda bound: (bound[0], -bound[1]), default=None)


def _bounds(node: Node, key: str, exclusive: str) -> list[Bound]:
    value = node.value
    flag = value.get(exclusive)
    found = [(exact(value[key]), int(flag is True))] if key in value else []
    return found + ([(exact(flag), 1)] if flag is not None and not isinstance(flag, bool) else [])


def multiple(nodes: Iterable[Node], of: Fraction) -> bool:
    """Whether all numbers are multiples of this one."""
    given = [exact(node.value["multipleOf"]) for node in nodes if "multipleOf" in node.value]
    whole = [Fraction(1)] if "number" not in types_of(list(nodes)) else []
    return any(each % of == 0 for each in [*given, *whole])


def count_bound(nodes: Iterable[Node], key: str, choose: Callable[[list[float]], float]) -> float | None:
    """The strictest of `minLength` and its like; `choose` is max or min."""
    given = [node.value[key] for node in nodes if key in node.value]
    return choose(given) if given else None


def required(nodes: Iterable[Node]) -> set[str]:
    """The properties that must be there."""
    lists = [node.value.get("required", ()) for node in nodes]  # true or false in draft 3, beside each property
    return {name for names in lists if not isinstance(names, bool) for name in names}


def property_named(nodes: Iterable[Node], name: str) -> tuple[Node, ...]:
    """What is known of the property of this name."""
    return tuple(Node(node.document, value) for node in nodes for value in _property(node.value, name))


def _property(value: dict[str, Any], name: str) -> Sequence[Any]:
    if name in value.get("properties", {}):
        return [value["properties"][name]]
    return _others(value)


def other_properties(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """What is known of properties that nobody has named."""
    return tuple(Node(node.document, value) for node in nodes for value in _others(node.value))


def _others(value: dict[str, Any]) -> Sequence[Any]:
    """Which names a pattern stands for is not known here, so beside patterns nothing is said of the others."""
    is_said = "additionalProperties" in value and not value.get("patternProperties")
    return [value["additionalProperties"]] if is_said else []


def forbids(nodes: Iterable[Node]) -> bool:
    """Whether one of them is `false`, so that there is nothing."""
    return any(node.value is False for node in nodes)


def _split_items(value: dict[str, Any]) -> tuple[Sequence[Any], Any]:
    """The first items one by one, and all others: written otherwise since 2020-12."""
    items = value.get("items", True)
    if "prefixItems" in value:
        return value["prefixItems"], items if not isinstance(items, list) else True
    return (items, value.get("additionalItems", True)) if isinstance(items, list) else ((), items)


def prefix_length(nodes: Iterable[Node]) -> int:
    """How many items have a schema of their own."""
    return max((len(_split_items(node.value)[0]) for node in nodes), default=0)


def item(nodes: Iterable[Node], number: int) -> tuple[Node, ...]:
    """What is known of one item."""
    split = [(node, *_split_items(node.value)) for node in nodes]
    return tuple(Node(node.document, first[number] if number < len(first) else rest) for node, first, rest in split)


def other_items(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """What is known of all items after the first ones."""
    return tuple(Node(node.document, _split_items(node.value)[1]) for node in nodes)
