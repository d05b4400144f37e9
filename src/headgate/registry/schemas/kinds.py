"""A schema of any kind: parsed, with its identity, and compared with others of its kind."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from headgate.registry.schemas.assumed import MOST_STEPS, TooComplexError
from headgate.registry.schemas.avro import AvroSchema, parse_avro
from headgate.registry.schemas.avro_rules import avro_problems
from headgate.registry.schemas.bounds import MOST_REFERENCES, check_text
from headgate.registry.schemas.json_rules import json_problems
from headgate.registry.schemas.json_schema import Document, parse_json_schema
from headgate.registry.schemas.problems import Problem, invalid
from headgate.registry.schemas.protobuf import ProtobufSchema, parse_protobuf
from headgate.registry.schemas.protobuf_rules import protobuf_problems

__all__ = ["Kind", "Referenced", "Schema", "parse", "read_problems"]

_REMEMBERED_CHARS = 32 * 1024


class Kind(enum.StrEnum):
    """The kinds of schemas there are."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Referenced(NamedTuple):
    """A schema that another one uses: what it calls it, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that was parsed."""

    kind: Kind
    text: str  # as it is kept
    identity: bytes = field(repr=False)  # of what it says, without the schemas that it refers to
    value: AvroSchema | Document | ProtobufSchema = field(repr=False)

    def serialized(self) -> str:
        """Return the text; that of Protobuf as a descriptor in base64."""
        return self.value.serialized() if isinstance(self.value, ProtobufSchema) else self.text


def parse(kind: Kind, text: str, references: Sequence[Referenced] = (), *, is_normalized: bool = False) -> Schema:
    """Parse a schema with all that it refers to, in an order in which each knows those before it.

    Raises InvalidSchemaError. What is equal but for white space has one identity; normalized, also what is written
    in another order. Small ones are remembered.
    """
    check_text(text)
    if len(references) > MOST_REFERENCES:
        invalid(f"the schema refers to {len(references)} others", f"at most {MOST_REFERENCES} are followed")
    size = len(text) + sum(len(each.text) for each in references)
    known = _parse_again if size <= _REMEMBERED_CHARS else _parse
    return known(kind, text, tuple(references), is_normalized)


def _parse(kind: Kind, text: str, references: tuple[Referenced, ...], is_normalized: bool) -> Schema:
    try:
        return _parsed(kind, text, references, is_normalized)
    except RecursionError:
        invalid("the schema is nested too deep")


def _parsed(kind: Kind, text: str, references: tuple[Referenced, ...], is_normalized: bool) -> Schema:
    if kind is Kind.PROTOBUF:
        protobuf = parse_protobuf(text, references)
        return Schema(kind, text, _digest(kind, protobuf.identity(is_normalized=is_normalized)), protobuf)
    value: AvroSchema | Document
    if kind is Kind.AVRO:
        value = parse_avro(text, [each.text for each in references])
    else:
        value = parse_json_schema(text, references)
    said = value.text(is_normalized=is_normalized)
    kept = said if is_normalized else text
    # Half surrogates are only possible as escapes, and these are written as they came.
    return Schema(kind, kept, _digest(kind, json.dumps(json.loads(said)).encode()), value)


_parse_again = lru_cache(maxsize=500)(_parse)


def _digest(kind: Kind, content: bytes) -> bytes:
    return sha256(f"{kind}\n".encode() + content).digest()


def read_problems(reader: Schema, writer: Schema) -> list[Problem]:
    """Return why data of `writer` cannot be read with `reader`; empty if it can."""
    try:
        return _problems(reader.value, writer.value)
    except (TooComplexError, RecursionError):
        return [Problem("TOO_COMPLEX", "", f"the comparison takes more than {MOST_STEPS:,} steps")]


def _problems(
    reader: AvroSchema | Document | ProtobufSchema, writer: AvroSchema | Document | ProtobufSchema
) -> list[Problem]:
    if isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema):
        return avro_problems(reader, writer)
    if isinstance(reader, Document) and isinstance(writer, Document):
        return json_problems(reader, writer)
    if isinstance(reader, ProtobufSchema) and isinstance(writer, ProtobufSchema):
        return protobuf_problems(reader, writer)
    return [Problem("SCHEMA_TYPE_CHANGED", "", "the schemas are of different types")]
