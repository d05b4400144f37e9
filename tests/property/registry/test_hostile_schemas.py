"""Whatever somebody sends as a schema, it is parsed or refused with our error; and comparing comes to an end."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from headgate.registry.schemas import InvalidSchemaError, Kind, Referenced, Schema, parse, read_problems
from headgate.registry.schemas.bounds import MOST_CHARS, MOST_DEPTH

_AVRO_WORDS = st.sampled_from(
    ["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases", "namespace", "record",
     "enum", "fixed", "array", "map", "int", "string", "null", "logicalType", "decimal", "precision", "scale", "R",
     "a.b", "__fastavro_parsed"]
)  # fmt: skip
_JSON_WORDS = st.sampled_from(
    ["type", "properties", "items", "allOf", "anyOf", "oneOf", "not", "$ref", "#", "#/properties/type", "$defs", "enum",
     "required", "object", "array", "string", "minimum", "multipleOf", "pattern", "if", "then", "dependencies", "$id",
     "additionalProperties", "patternProperties", "prefixItems", "contains", "dependentRequired", "const", "$anchor",
     "propertyNames", "uniqueItems", "exclusiveMinimum", "maxItems", "additionalItems", "#/enum/0", "id"]
)  # fmt: skip


def shaped(words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON in which the words of a kind stand where they belong, and where they do not."""
    leaves = words | st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5), max_leaves=15
    )


def parsed(kind: Kind, value: Any) -> Schema | None:
    with suppress(InvalidSchemaError):
        return parse(kind, value if isinstance(value, str) else json.dumps(value))
    return None


@given(shaped(_AVRO_WORDS), shaped(_AVRO_WORDS))
def test_avro(one: Any, other: Any) -> None:
    compared(parsed(Kind.AVRO, one), parsed(Kind.AVRO, other))


@given(shaped(_JSON_WORDS), shaped(_JSON_WORDS))
def test_json(one: Any, other: Any) -> None:
    compared(parsed(Kind.JSON, json.dumps(one)), parsed(Kind.JSON, json.dumps(other)))


def compared(one: Schema | None, other: Schema | None) -> None:
    if one and other:
        assert read_problems(one, one) == []
        read_problems(one, other)
        read_problems(other, one)


@given(st.binary(max_size=200))
def test_descriptors(data: bytes) -> None:
    parsed(Kind.PROTOBUF, base64.b64encode(data).decode())


@given(st.sampled_from([Kind.AVRO, Kind.JSON]), st.text(max_size=100))
def test_texts(kind: Kind, text: str) -> None:
    parsed(kind, text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MOST_CHARS + 1),
        "[" * 100_000,
        "[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2),
        '{"a": 1, "a": 2}',
        "1e999",
        "1" * 5000,
        '"\\ud800"',
        '"\0"',
        "[" + ",".join(["1"] * 60_000) + "]",
    ],
    ids=["long", "open", "deep", "twice", "huge", "digits", "surrogate", "nul", "many"],
)
def test_bombs_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(Kind.JSON, text)


def test_types_that_contain_themselves_are_compared_in_no_time() -> None:
    """Each type has two fields of the next, and the last leads back to the first: two to the power of thirty ways."""
    names = [f"R{number}" for number in range(30)]

    def nested(number: int) -> Any:
        inner = nested(number + 1) if number + 1 < len(names) else "R0"
        fields = [{"name": "a", "type": ["null", inner]}, {"name": "b", "type": ["null", names[(number + 1) % 30]]}]
        return {"type": "record", "name": names[number], "fields": fields}

    with pytest.raises(InvalidSchemaError, match="nested"):
        parse(Kind.AVRO, json.dumps(nested(0)))
    names = names[:12]
    schema = parse(Kind.AVRO, json.dumps(nested_of(names)))
    assert read_problems(schema, schema) == []


def nested_of(names: list[str]) -> Any:
    head, *rest = names
    if not rest:
        return {"type": "record", "name": head, "fields": [{"name": "a", "type": ["null", "R0"]}]}
    fields = [{"name": "a", "type": ["null", nested_of(rest)]}, {"name": "b", "type": ["null", rest[0]]}]
    return {"type": "record", "name": head, "fields": fields}


def test_a_comparison_that_would_take_for_ever_is_given_up() -> None:
    branches = [{"anyOf": [{"minimum": number}, {"maximum": -number}]} for number in range(1, 40)]
    old = parse(Kind.JSON, json.dumps({"allOf": branches}))
    new = parse(Kind.JSON, json.dumps({"type": "number", "multipleOf": 3}))
    (problem,) = read_problems(new, old)
    assert problem.kind == "TOO_COMPLEX"


def test_a_type_in_a_type_of_an_imported_file_is_compared() -> None:
    """What a file imports is a part of what it says."""
    city = FileDescriptorProto(name="c.proto", package="p", syntax="proto3")
    city.message_type.add(name="City").field.add(name="name", number=1, type=9, label=1)
    other = FileDescriptorProto.FromString(city.SerializeToString())
    other.message_type[0].field[0].type = 5
    order = 'syntax = "proto3"; package p; import "c.proto"; message O { City to = 1; repeated O next = 2; }'
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (city, other)]
    one, two = (parse(Kind.PROTOBUF, order, [Referenced("c.proto", text)]) for text in texts)
    assert read_problems(one, one) == []
    assert [each.kind for each in read_problems(one, two)] == ["FIELD_SCALAR_KIND_CHANGED"]
