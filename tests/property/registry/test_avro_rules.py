"""What we call compatible, fastavro reads; what we call incompatible, it fails on for some value."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from fastavro.read import SchemaResolutionError
from hypothesis import given
from hypothesis import strategies as st

from headgate.registry.schemas import Kind, parse, read_problems

_SAMPLES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True],
    "int": [7],
    "long": [1 << 40],
    "float": [0.5],
    "double": [0.25],
    "string": ["text"],
    "bytes": [b"text"],
}
_DEFAULTS: dict[str, Any] = {"null": None, "boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0}
_PRIMITIVES = st.sampled_from(sorted(_SAMPLES))
_FIELDS = ("a", "b", "c")
_SYMBOLS = st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3, unique=True)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0, path: str = "", *, in_union: bool = False) -> Any:
    """A schema whose named types are called by where they stand, so that versions of it agree."""
    kinds = ["primitive", "enum", "fixed"]
    kinds += ["record", "record", "array", "map"] if depth < 2 else []
    kinds += ["union"] if depth < 2 and not in_union else []
    kind = draw(st.sampled_from(kinds))
    if kind == "record":
        names = draw(st.lists(st.sampled_from(_FIELDS), unique=True, max_size=3))
        return {"type": "record", "name": f"R{path}", "fields": [draw(fields(name, depth, path)) for name in names]}
    if kind == "enum":
        symbols = draw(_SYMBOLS)
        extra = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": f"E{path}", "symbols": symbols} | extra
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{path}", "size": draw(st.integers(1, 2))}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth + 1, f"{path}i"))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth + 1, f"{path}v"))}
    if kind == "union":
        branches = draw(st.lists(schemas(depth + 1, f"{path}u", in_union=True), min_size=1, max_size=3))
        return list({json.dumps(_head(each)): each for each in branches}.values())
    return draw(_PRIMITIVES)


@st.composite
def fields(draw: st.DrawFn, name: str, depth: int, path: str) -> Any:
    type_ = draw(schemas(depth + 1, f"{path}{name}"))
    field = {"name": name, "type": type_}
    if isinstance(type_, str) and type_ in _DEFAULTS and draw(st.booleans()):
        field["default"] = _DEFAULTS[type_]
    return field


def _head(schema: Any) -> Any:
    return schema if isinstance(schema, str) else [schema["type"], schema.get("name")]


_PROMOTED = {"int": "long", "long": "float", "float": "double", "string": "bytes", "bytes": "string"}


@st.composite
def versions(draw: st.DrawFn, schema: Any, depth: int = 0, path: str = "", *, in_union: bool = False) -> Any:
    """Another version of a schema: most of it stays."""
    change: str = draw(st.sampled_from(["stay", "stay", "inner", "inner", "inner", "promote", "other", "union"]))
    if change == "other":
        return draw(schemas(depth, path, in_union=in_union))
    if change == "promote" and isinstance(schema, str):
        return _PROMOTED.get(schema, schema)
    if change == "union" and not in_union and not isinstance(schema, list):
        more = draw(_PRIMITIVES)
        return [schema, more] if _head(more) != _head(schema) else schema
    return draw(_inner_versions(schema, depth, path)) if change == "inner" else schema


@st.composite
def _inner_versions(draw: st.DrawFn, schema: Any, depth: int, path: str) -> Any:
    if isinstance(schema, list):
        branches = [draw(versions(each, depth + 1, f"{path}u", in_union=True)) for each in schema]
        chosen = draw(st.permutations(branches))[: draw(st.integers(1, len(branches)))]
        return list({json.dumps(_head(each)): each for each in chosen}.values())
    if isinstance(schema, str):
        return schema
    if schema["type"] == "array":
        return schema | {"items": draw(versions(schema["items"], depth + 1, f"{path}i"))}
    if schema["type"] == "map":
        return schema | {"values": draw(versions(schema["values"], depth + 1, f"{path}v"))}
    if schema["type"] == "enum":
        return draw(schemas(2, path).filter(lambda each: isinstance(each, dict) and each["type"] == "enum"))
    return schema | {"fields": draw(_other_fields(schema, depth, path))} if schema["type"] == "record" else schema


@st.composite
def _other_fields(draw: st.DrawFn, schema: Any, depth: int, path: str) -> Any:
    kept: list[dict[str, Any]] = []
    renamed: set[str] = set()  # an alias that is another field's name means one thing to Java and another to fastavro
    for field in schema["fields"]:
        if draw(st.integers(0, 4)) == 0:
            continue
        changed = {"name": field["name"], "type": draw(versions(field["type"], depth + 1, f"{path}{field['name']}"))}
        if not draw(st.integers(0, 4)):
            renamed.add(field["name"])
            changed |= {"name": f"{field['name']}_new", "aliases": [field["name"]]}
        kept.append(changed)
    missing = [name for name in _FIELDS if name not in {each["name"] for each in kept} | renamed]
    more = missing[: draw(st.integers(0, 1))]
    kept += [draw(fields(name, depth, path)) for name in more]
    return kept


def samples(schema: Any) -> Iterator[Any]:
    """Values in which every branch, symbol and field is seen at least once, beside the first of all others."""
    if isinstance(schema, list):
        for branch in schema:
            yield from (_of_branch(branch, value) for value in samples(branch))
    elif isinstance(schema, str):
        yield from _SAMPLES[schema]
    elif schema["type"] == "record":
        first = {field["name"]: next(samples(field["type"])) for field in schema["fields"]}
        yield first
        yield from (first | {field["name"]: value} for field in schema["fields"] for value in samples(field["type"]))
    elif schema["type"] == "enum":
        yield from schema["symbols"]
    elif schema["type"] == "fixed":
        yield b"x" * schema["size"]
    elif schema["type"] == "array":
        yield from ([value] for value in samples(schema["items"]))
    else:
        yield from ({"k": value} for value in samples(schema["values"]))


def _of_branch(branch: Any, value: Any) -> Any:
    """fastavro takes the name of the branch with the value."""
    if isinstance(branch, dict) and "name" in branch:
        return (branch["name"], value)
    return value if branch == "null" else (branch if isinstance(branch, str) else branch["type"], value)


def is_read(reader: Any, writer: Any, value: Any) -> bool:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(writer), value)
    data.seek(0)
    try:
        fastavro.schemaless_reader(data, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    except SchemaResolutionError:
        return False
    return True


@given(st.data())
def test_data_of_the_writer_can_be_read_exactly_if_we_say_so(data: st.DataObject) -> None:
    writer = data.draw(schemas())
    reader = data.draw(versions(writer) | schemas())
    problems = read_problems(parse(Kind.AVRO, json.dumps(reader)), parse(Kind.AVRO, json.dumps(writer)))
    read = {index: is_read(reader, writer, value) for index, value in enumerate(samples(writer))}
    assert all(read.values()) == (not problems), problems


@given(schemas())
def test_every_schema_reads_itself(schema: Any) -> None:
    parsed = parse(Kind.AVRO, json.dumps(schema))
    assert read_problems(parsed, parsed) == []


@given(schemas())
def test_the_normal_form_is_its_own_normal_form_and_says_the_same(schema: Any) -> None:
    normal = parse(Kind.AVRO, json.dumps(schema), is_normalized=True)
    assert parse(Kind.AVRO, normal.text, is_normalized=True).identity == normal.identity
    given_as_it_is = parse(Kind.AVRO, json.dumps(schema))
    assert read_problems(normal, given_as_it_is) == read_problems(given_as_it_is, normal) == []
