"""Other implementations of the protocol, which read what is ours and write it again: kio and kafka-python."""

from __future__ import annotations

import importlib
import io
import json
import re
import warnings
from collections.abc import Callable
from importlib import resources
from typing import Any, TypeAlias

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from headgate.wire.kafka import Api

__all__ = ["Oracle", "definition", "kafka_python", "oracles", "versions_of"]

# Takes the API, bytes of ours, the version and whether it is a request.
Oracle: TypeAlias = Callable[[Api[Any, Any], bytes, int, bool], bytes]

_FAMILIES = "admin", "consumer", "metadata", "producer", "sasl"
_NOT_IN_KAFKA_PYTHON = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}


def kafka_python(name: str) -> Any:
    """A module of kafka-python, whose import warns of its own use of the standard library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"kafka.{name}")


_MESSAGES = {name: value for family in _FAMILIES for name, value in vars(kafka_python(f"protocol.{family}")).items()}


def definition(name: str) -> dict[str, Any]:
    """Kafka's own definition of a message, as it lies in the package; the classes made of it differ a little."""
    text = resources.files("kafka.protocol.schemas.resources").joinpath(f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {struct["name"]: struct["fields"] for struct in found.get("commonStructs", ())}
    _fill(found["fields"], shared)
    return found


def _fill(fields: list[dict[str, Any]], shared: dict[str, Any]) -> None:
    """Structs that a message uses more than once are defined apart from it."""
    for field in fields:
        if field["type"].removeprefix("[]") in shared:
            field["fields"] = shared[field["type"].removeprefix("[]")]
        _fill(field.get("fields", []), shared)


def versions_of(api: Api[Any, Any]) -> list[int]:
    """The versions that Kafka 4 has, as kio knows them."""
    return sorted(schema_name_map[api_key_map[api.key]])


def oracles(api: Api[Any, Any], version: int) -> list[Oracle]:
    """Who knows this version; kafka-python takes older ones too, but without the fields that they had."""
    if version not in versions_of(api):
        return []
    return [_through_kio] if api.name in _NOT_IN_KAFKA_PYTHON else [_through_kio, _through_kafka_python]


def _through_kio(api: Api[Any, Any], data: bytes, version: int, is_request: bool) -> bytes:
    schema: Any = (load_request_schema if is_request else load_response_schema)(api.key, version)
    entity, end = entity_reader(schema)(data, 0)
    assert end == len(data)
    with io.BytesIO() as out:
        entity_writer(schema)(out, entity)
        return out.getvalue()


def _through_kafka_python(api: Api[Any, Any], data: bytes, version: int, is_request: bool) -> bytes:
    if api.name == "ApiVersions" and not is_request and data[:2] != b"\0\0":
        return data  # it reads every refusal as version 0, whatever it had asked for
    cls = _MESSAGES[(api.request if is_request else api.response).__name__]
    message = cls.decode(data, version=version)
    message._header = None  # it cannot write a message that lacks even this
    return bytes(message.encode(version=version))
