"""What we call compatible, a validator never refuses; what only loosens a schema, we call compatible."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from headgate.registry.schemas import Kind, Schema, parse, read_problems

_NAMES = st.sampled_from(["a", "b", "ab"])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.sampled_from([0.5, 1.5, 2.0])
    | st.sampled_from(["", "a", "abc"])
)
values = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)
_TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_COUNT = st.integers(0, 3)


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return (
        _some(
            type=st.just("object"),
            properties=st.dictionaries(_NAMES, inner, max_size=2),
            required=st.lists(_NAMES, max_size=2, unique=True),
            additionalProperties=inner,
            patternProperties=st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            propertyNames=_some(minLength=_COUNT, enum=st.lists(_NAMES, min_size=1, unique=True)),
            minProperties=_COUNT,
            maxProperties=_COUNT,
            dependentRequired=st.dictionaries(_NAMES, st.lists(_NAMES, max_size=1), max_size=1),
        )
        | _some(
            type=st.just("array"),
            items=inner,
            prefixItems=several,
            minItems=_COUNT,
            maxItems=_COUNT,
            uniqueItems=st.booleans(),
            contains=inner,
        )
        | _some(anyOf=several, oneOf=several, allOf=several, type=_TYPES)
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"if": inner, "then": inner})
        | st.fixed_dictionaries({"$ref": st.just("#/$defs/other")})
    )


_plain = (
    st.booleans()
    | _some(type=_TYPES | st.lists(_TYPES, min_size=1, max_size=3, unique=True), title=st.just("any"))
    | _some(
        type=st.sampled_from(["integer", "number"]),
        minimum=st.integers(-1, 3),
        maximum=st.integers(1, 5),
        exclusiveMinimum=st.sampled_from([0, 0.5, 1]),
        exclusiveMaximum=st.sampled_from([1, 4.5]),
        multipleOf=st.sampled_from([1, 2, 0.5]),
    )
    | _some(type=st.just("string"), minLength=_COUNT, maxLength=_COUNT, pattern=st.sampled_from(["^a", "c$"]))
    | st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"const": values})
)
_schemas = st.recursive(_plain, _deeper, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    root = draw(_schemas)
    if isinstance(root, bool):
        return root
    return root | {"$defs": {"other": draw(_plain)}, "$schema": "https://json-schema.org/draft/2020-12/schema"}


@st.composite
def versions(draw: st.DrawFn, schema: Any) -> Any:
    """Another version of a schema: a place in it is another, is gone, or is wider."""
    if not isinstance(schema, dict) or not draw(st.integers(0, 5)):
        return draw(_schemas)
    changed = dict(schema)
    keys = [key for key in schema if key not in ("$defs", "$schema")]
    if not keys:
        return changed
    key = draw(st.sampled_from(keys))
    match draw(st.sampled_from(["drop", "inner", "inner", "wrap"])), schema[key]:
        case "drop", _:
            del changed[key]
        case "wrap", _:
            changed = {
                "$defs": schema.get("$defs", {}),
                draw(st.sampled_from(["anyOf", "oneOf"])): [schema, draw(_plain)],
            }
        case _, int() | float() as number if not isinstance(number, bool):
            changed[key] = max(number + draw(st.integers(-1, 1)), 0.5 if key == "multipleOf" else 0)
        case _, dict() as inner if key in ("properties", "patternProperties") and inner:
            name = draw(st.sampled_from(sorted(inner)))
            changed[key] = inner | {name: draw(versions(inner[name]))}
        case _, dict() as inner if key in ("items", "additionalProperties", "not", "contains", "if", "then"):
            changed[key] = draw(versions(inner))
        case _, list() as inner if key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            changed[key] = [draw(versions(inner[0])), *inner[1:], *draw(st.lists(_plain, max_size=1))]
    return changed


def parsed(schema: Any) -> Schema:
    return parse(Kind.JSON, json.dumps(schema))


def with_definitions(schema: Any, old: Any) -> Any:
    definitions = old.get("$defs", {"other": True}) if isinstance(old, dict) else {"other": True}
    return {"$defs": definitions} | schema if isinstance(schema, dict) else schema


@given(st.data())
def test_what_is_compatible_refuses_nothing_that_was_allowed(data: st.DataObject) -> None:
    old = data.draw(schemas())
    new = with_definitions(data.draw(versions(old)), old)
    if read_problems(parsed(new), parsed(old)):
        return
    was, becomes = jsonschema_rs.Draft202012Validator(old), jsonschema_rs.Draft202012Validator(new)
    for value in data.draw(st.lists(values, min_size=10, max_size=30)):
        assert becomes.is_valid(value) or not was.is_valid(value), value


@given(schemas())
def test_every_schema_allows_what_it_allows(schema: Any) -> None:
    assert read_problems(parsed(schema), parsed(schema)) == []


@given(schemas(), st.data())
def test_a_schema_may_lose_a_keyword(schema: Any, data: st.DataObject) -> None:
    """Those that stand for themselves: without `if` or `contains` others mean something else.

    Values that a schema lists are only looked at where every keyword can be decided for them.
    """
    alone = {"type", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "required", "minItems",
             "maxItems", "uniqueItems", "minProperties", "maxProperties", "propertyNames", "not"}  # fmt: skip
    keys = sorted(alone & schema.keys()) if isinstance(schema, dict) else []
    if keys and not any(word in json.dumps(schema) for word in ('"enum"', '"const"', '"$ref"')):
        gone = data.draw(st.sampled_from(keys))
        assert read_problems(parsed({k: v for k, v in schema.items() if k != gone}), parsed(schema)) == []


@given(schemas())
def test_the_normal_form_says_the_same(schema: Any) -> None:
    normal = parse(Kind.JSON, json.dumps(schema), is_normalized=True)
    turned = json.dumps(_turned(schema))
    assert parse(Kind.JSON, turned, is_normalized=True).identity == normal.identity


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _turned(each) for name, each in reversed(value.items())}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@given(st.data())
def test_several_schemas_at_once_refuse_nothing_that_was_allowed(data: st.DataObject) -> None:
    """The writer's schema is put together of parts, each with branches of its own."""
    parts = data.draw(st.lists(_some(anyOf=st.lists(_plain, min_size=1, max_size=2), type=_TYPES), max_size=3))
    old = {"allOf": [*parts, data.draw(_plain)]}
    new = data.draw(_plain | versions(old) | st.fixed_dictionaries({"allOf": st.lists(_plain, min_size=1, max_size=2)}))
    if read_problems(parsed(new), parsed(with_definitions(old, {}))):
        return
    was, becomes = jsonschema_rs.Draft202012Validator(old), jsonschema_rs.Draft202012Validator(new)
    for value in data.draw(st.lists(values, min_size=10, max_size=30)):
        assert becomes.is_valid(value) or not was.is_valid(value), value
