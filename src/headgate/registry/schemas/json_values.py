"""Whether a JSON Schema takes a value: for the values that a schema lists, and with no regular expression run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.registry.schemas import json_facts as facts
from headgate.registry.schemas.assumed import Comparison
from headgate.registry.schemas.bounds import same_json
from headgate.registry.schemas.json_schema import Node

__all__ = ["accepts"]

# With one of these it is not known, and what is not known is refused.
_UNKNOWN = (
    "pattern", "contains", "if", "dependencies", "dependentSchemas", "dependentRequired", "unevaluatedProperties",
    "unevaluatedItems", "$dynamicRef", "$recursiveRef", "patternProperties", "propertyNames", "not",
)  # fmt: skip
_SIZES: dict[type, str] = {str: "Length", list: "Items", dict: "Properties"}


def accepts(node: Node, value: Any, comparison: Comparison) -> bool:
    """Return whether it is certain that a schema takes this value."""
    comparison.step()
    schema = node.value
    if isinstance(schema, bool):
        return schema
    if any(key in schema for key in _UNKNOWN):
        return False
    types = facts.types_said(node)
    if types is not None and facts.type_of(value) not in types:
        return False
    listed = facts.values_of([node])
    if listed is not None and not any(same_json(value, each) for each in listed):
        return False
    return _in_bounds(node, value) and _inside(node, value, comparison) and _combined(node, value, comparison)


def _in_bounds(node: Node, value: Any) -> bool:
    if facts.type_of(value) in ("integer", "number"):
        number = facts.exact(value)
        least, most = facts.lower([node]), facts.upper([node])
        is_above = least is None or (number, 0) >= least
        is_below = most is None or (number, 0) <= (most[0], -most[1])
        return is_above and is_below and ("multipleOf" not in node.value or _divides(node.value["multipleOf"], number))
    subject = _SIZES.get(type(value))
    if subject is None:
        return True
    return bool(node.value.get(f"min{subject}", 0) <= len(value) <= node.value.get(f"max{subject}", len(value)))


def _divides(factor: float, number: Any) -> bool:
    return bool(number % facts.exact(factor) == 0)


def _inside(node: Node, value: Any, comparison: Comparison) -> bool:
    if isinstance(value, dict):
        return facts.required([node]) <= value.keys() and all(
            _all(facts.property_named([node], name), each, comparison) for name, each in value.items()
        )
    if isinstance(value, list):
        is_unique = node.value.get("uniqueItems") is not True or _differ(value)
        return is_unique and all(
            _all(facts.item([node], number), each, comparison) for number, each in enumerate(value)
        )
    return True


def _all(nodes: Sequence[Node], value: Any, comparison: Comparison) -> bool:
    return all(accepts(each, value, comparison) for each in nodes)


def _differ(values: Sequence[Any]) -> bool:
    return not any(same_json(one, other) for number, one in enumerate(values[:100]) for other in values[number + 1 :])


def _combined(node: Node, value: Any, comparison: Comparison) -> bool:
    schema, document = node.value, node.document
    if "$ref" in schema:
        target = document.resolve(schema["$ref"])
        if target is None or not accepts(target, value, comparison):
            return False
    if not all(accepts(Node(document, each), value, comparison) for each in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(accepts(Node(document, each), value, comparison) for each in schema["anyOf"]):
        return False
    return "oneOf" not in schema  # that the others refuse it would have to be certain, too
