"""Our definitions against Kafka's own, which kafka-python ships: names, types, versions, null, tags and defaults.

KIP-848 is not among them; there, kio's classes are what we compare with.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from headgate.wire.kafka import NO_UUID, Body
from headgate.wire.kafka.schema import Kind, fields_of
from tests.property.kafka_wire.kafka_wire_oracles import definition
from tests.property.kafka_wire.kafka_wire_strategies import EVERY_API

_FOREVER = 32767
_ABSENT = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
_IN_KIO_ALONE = [api for api in EVERY_API if api.name in _ABSENT]
_IN_KAFKA_PYTHON = [api for api in EVERY_API if api.name not in _ABSENT]
# Version 0 of ListOffsets, which Kafka 4 no longer has.
_OURS_ALONE = {"max_num_offsets", "old_style_offsets"}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def versions(text: str) -> tuple[int, int]:
    first, dash, last = text.rstrip("+").partition("-")
    return int(first), int(last) if dash else (_FOREVER if text.endswith("+") else int(first))


def within(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int]:
    return max(outer[0], inner[0]), min(outer[1], inner[1])


def default_of(field: dict[str, Any]) -> Any:
    """What a field has in a version without it."""
    kind, text = field["type"], field.get("default")
    if text == "null" or (kind == "records" and text is None):
        return None
    if kind.startswith("[]"):
        return ()
    if kind == "float64":
        return float(text or 0)
    if kind.removeprefix("u").startswith("int"):
        return int(str(text), 0) if text is not None else 0
    zeros = {"bool": str(text).lower() == "true", "string": text or "", "bytes": b"", "uuid": NO_UUID}
    return zeros.get(kind, "a struct")


def theirs(fields: list[dict[str, Any]], span: tuple[int, int]) -> list[Any]:
    rows = []
    for field in fields:
        own = within(span, versions(field["versions"]))
        if own[0] > own[1]:
            continue
        nullable = within(own, versions(field["nullableVersions"])) if "nullableVersions" in field else None
        inner = theirs(field["fields"], own) if "fields" in field else field["type"].removeprefix("[]")
        is_array = field["type"].startswith("[]")
        null_from = nullable[0] if nullable and nullable[0] <= nullable[1] else None
        rows.append((snake(field["name"]), inner, is_array, own, null_from, field.get("tag"), default_of(field)))
    return rows


def ours(cls: type[Body], span: tuple[int, int]) -> list[Any]:
    rows = []
    for field in fields_of(cls):
        if field.name in _OURS_ALONE:
            continue
        own = within(span, (field.first, field.last))
        inner = field.kind.name if isinstance(field.kind, Kind) else ours(field.kind, own)
        null_from = max(own[0], field.nullable_from) if field.nullable_from <= own[1] else None
        is_struct_default = isinstance(field.default, Body)
        default = "a struct" if is_struct_default else field.default
        rows.append((field.name, inner, field.is_array, own, null_from, field.tag, default))
    return rows


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("api", _IN_KAFKA_PYTHON, ids=lambda api: api.name)
def test_a_message_is_defined_as_kafka_defines_it(api: Any, kind: str) -> None:
    cls = getattr(api, kind)
    kafkas = definition(cls.__name__)
    span = versions(kafkas["validVersions"])
    assert ours(cls, span) == theirs(kafkas["fields"], span)
    flexible = kafkas["flexibleVersions"]
    assert api.flexible == (None if flexible == "none" else versions(flexible)[0])
    assert api.key == kafkas["apiKey"]


def of_kio(cls: Any) -> list[Any]:
    """Names, types, arrays and null of one version."""
    hints = typing.get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        kind, hint = field.metadata.get("kafka_type"), hints[field.name]
        name = f"{field.name}_ms" if kind == "timedelta_i32" else field.name
        is_nullable = types.NoneType in typing.get_args(hint) and kind != "uuid"  # kio reads no uuid as None
        inner = (
            next((part for part in typing.get_args(hint) if part is not types.NoneType), hint) if is_nullable else hint
        )
        is_array = typing.get_origin(inner) is tuple
        item = typing.get_args(inner)[0] if is_array else inner
        plain = {"timedelta_i32": "int32", "error_code": "int16"}.get(kind or "", kind)
        rows.append((name, plain or of_kio(item), is_array, is_nullable))
    return rows


def of_ours(cls: type[Body], version: int) -> list[Any]:
    return [
        (
            field.name,
            field.kind.name if isinstance(field.kind, Kind) else of_ours(field.kind, version),
            field.is_array,
            field.may_be_null(version),
        )
        for field in fields_of(cls)
        if field.exists(version)
    ]


@pytest.mark.parametrize("api", _IN_KIO_ALONE, ids=lambda api: api.name)
def test_a_message_is_defined_as_kio_defines_it(api: Any) -> None:
    for version in range(api.first, api.last + 1):
        assert of_ours(api.request, version) == of_kio(load_request_schema(api.key, version))
        assert of_ours(api.response, version) == of_kio(load_response_schema(api.key, version))
