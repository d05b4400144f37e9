"""Ordinary changes of schemas, with what they are called: the tables that documents of other registries have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.registry.schemas import Kind, Level, Schema, incompatibilities, parse, read_problems


def kinds(kind: Kind, new: Any, old: Any) -> list[str]:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (new, old)]
    return [each.kind for each in read_problems(parse(kind, texts[0]), parse(kind, texts[1]))]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT, COUNT = {"type": "string"}, {"type": "integer"}
TREE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (closed(a=TEXT), closed(a=TEXT, b=TEXT), []),
        (opened(a=TEXT), opened(a=TEXT, b=TEXT), ["TYPE_NARROWED"]),
        (opened(a=TEXT, b=TEXT), opened(a=TEXT), []),
        (closed(a=TEXT, b=TEXT), closed(a=TEXT), ["NOTHING_ALLOWED"]),
        (closed(a=TEXT), opened(a=TEXT), []),
        (opened(a=TEXT), closed(a=TEXT), ["NOTHING_ALLOWED"]),
        (opened(a=COUNT), opened(a={"type": "number"}), []),
        (opened(a={"type": "number"}), opened(a=COUNT), ["TYPE_NARROWED"]),
        (opened(a=TEXT), opened(a={"type": ["string", "null"]}), []),
        (opened(a=TEXT), opened(a={"oneOf": [{"type": "null"}, TEXT]}), []),
        (opened(a=TEXT), opened(a=TEXT) | {"required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}, []),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_NARROWED"]),
        ({"enum": ["a", "b"]}, TEXT, []),
        (TEXT | {"maxLength": 3}, TEXT | {"maxLength": 4}, []),
        (TEXT | {"maxLength": 3}, TEXT | {"maxLength": 2}, ["MAX_LENGTH_DECREASED"]),
        (TEXT, TEXT | {"pattern": "a"}, ["NOT_COMPARED"]),
        (TEXT | {"pattern": "a"}, TEXT | {"pattern": "a", "title": "T"}, []),
        (COUNT | {"minimum": 1}, COUNT | {"minimum": 0}, []),
        (COUNT | {"minimum": 0}, COUNT | {"exclusiveMinimum": 0}, ["MINIMUM_INCREASED"]),
        ({"type": "array", "items": COUNT}, {"type": "array", "items": TEXT}, ["TYPE_NARROWED"]),
        (TREE, TREE | {"title": "Tree"}, []),
        (TREE, TREE | {"required": ["next"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
    ],
)
def test_json_schema(old: Any, new: Any, expected: list[str]) -> None:
    assert sorted(set(kinds(Kind.JSON, new, old))) == expected


def record(*fields: tuple[Any, ...], name: str = "shop.R", **more: Any) -> dict[str, Any]:
    made = [{"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})} for each in fields]
    return {"type": "record", "name": name, "fields": made} | more


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (record(), record(("a", "int", 0)), []),
        (record(), record(("a", "int")), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(("a", "int")), record(), []),
        (record(("a", "int")), record(("a", "long")), []),
        (record(("a", "long")), record(("a", "int")), ["TYPE_MISMATCH"]),
        (record(("a", "string")), record(("a", ["null", "string"])), []),
        (record(("a", ["null", "string"])), record(("a", "string")), ["TYPE_MISMATCH"]),
        (record(), record(name="shop.S"), ["NAME_MISMATCH"]),
        (record(), record(name="shop.S", aliases=["R"]), []),
        (record(), record(name="other.R"), []),
        (record(("next", ["null", "R"], None)), record(("next", ["null", "R"], None), ("a", "int", 0)), []),
        (
            record(("next", ["null", "R"])),
            record(("next", ["null", "R"]), ("a", "int")),
            ["READER_FIELD_MISSING_DEFAULT_VALUE"],
        ),
    ],
)
def test_avro(old: Any, new: Any, expected: list[str]) -> None:
    assert kinds(Kind.AVRO, new, old) == expected


def proto(body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package shop; message M {{ {body} }}'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (proto("int32 a = 1;"), proto("int32 a = 1; string b = 2;"), []),
        (proto("int32 a = 1;"), proto(""), []),
        (proto("int32 a = 1;"), proto("int64 renamed = 1;"), []),
        (proto("int32 a = 1;"), proto("string a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
        (proto("int32 a = 1;"), proto("message N {} N a = 1;"), ["FIELD_KIND_CHANGED"]),
        (proto("int32 a = 1;"), proto("repeated int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
        (proto("string a = 1;"), proto("repeated string a = 1;"), []),
        (proto("map<string, int32> a = 1;"), proto("map<string, int64> b = 1;"), []),
        (proto("map<string, int32> a = 1;"), proto("map<string, string> a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
        (proto("int32 a = 1;"), proto("oneof o { int32 a = 1; string b = 2; }"), []),
        (
            proto("int32 a = 1; string b = 2;"),
            proto("oneof o { int32 a = 1; string b = 2; }"),
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            proto("oneof o { int32 a = 1; string b = 2; }"),
            proto("oneof o { int32 a = 1; }"),
            ["ONEOF_FIELD_REMOVED"],
        ),
        (proto("optional int32 a = 1; optional int32 b = 2;"), proto("optional int32 a = 1; int32 b = 2;"), []),
        (proto("", "proto2"), proto("required int32 a = 1;", "proto2"), ["REQUIRED_FIELD_ADDED"]),
        (proto("required int32 a = 1;", "proto2"), proto("", "proto2"), []),
        (proto("repeated M a = 1;"), proto("repeated M a = 1; int32 b = 2;"), []),
        (proto("") + " message N {}", proto(""), ["MESSAGE_REMOVED"]),
        (proto(""), proto("").replace("package shop", "package other"), ["PACKAGE_CHANGED"]),
        (proto("enum E { X = 0; } E a = 1;"), proto("int32 a = 1;"), []),
    ],
)
def test_protobuf(old: str, new: str, expected: list[str]) -> None:
    assert kinds(Kind.PROTOBUF, new, old) == expected


def avro(*fields: tuple[Any, ...]) -> Schema:
    return parse(Kind.AVRO, json.dumps(record(*fields)))


FIRST, SECOND = (1, avro(("a", "int"))), (2, avro(("b", "int", 0)))
THIRD = avro(("a", "string", ""), ("b", "int", 0))


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        (Level.NONE, set()),
        (Level.BACKWARD, set()),
        (Level.BACKWARD_TRANSITIVE, {1}),
        (Level.FORWARD, set()),
        (Level.FORWARD_TRANSITIVE, {1}),
        (Level.FULL, set()),
        (Level.FULL_TRANSITIVE, {1}),
    ],
)
def test_levels_choose_versions_and_directions(level: Level, versions: set[int]) -> None:
    assert {each.version for each in incompatibilities(level, THIRD, [FIRST, SECOND])} == versions


def test_schemas_of_two_kinds_do_not_follow_each_other() -> None:
    (problem,) = read_problems(parse(Kind.JSON, "{}"), THIRD)
    assert problem.kind == "SCHEMA_TYPE_CHANGED"
