"""What clients send and get: bodies, parameters and answers, checked and made."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from headgate.registry.database import Reference, StoredSchema
from headgate.registry.errors import RefusedError, bad_request
from headgate.registry.schemas import InvalidSchemaError, Kind, Referenced, parse
from headgate.registry.schemas.bounds import MOST_CHARS, MOST_REFERENCES
from headgate.registry.subjects import Draft, Found

__all__ = [
    "ConfigBody", "ModeBody", "SchemaBody", "checked_subject", "draft_of", "flag", "found_answer", "number",
    "read_body", "schema_answer",
]  # fmt: skip

MOST_BODY = 4 * MOST_CHARS
MOST_ROWS = 10_000  # of a list, in one answer
MOST_ANSWER = 32 << 20
_MOST_NAME = 512
_PATIENCE_S = 30.0  # for a body to arrive
_MOST_INT = (1 << 31) - 1

T = TypeVar("T", bound="_Body")


class _Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A body of which every name is known."""


class _Reference(_Body):
    name: str
    subject: str
    version: int


class SchemaBody(_Body):
    """A schema to be registered, looked up or tested. What is only null here is not served."""

    schema: str
    schema_type: str | None = None
    references: list[_Reference] | None = None
    id: int | None = None
    version: int | None = None
    subject: str | None = None
    metadata: None = None
    rule_set: None = None
    schema_tags_to_add: None = None
    schema_tags_to_remove: None = None
    propagate_schema_tags: bool | None = None
    guid: str | None = None


class ConfigBody(_Body):
    """A level of compatibility to be set."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    alias: None = None
    normalize: None = None
    compatibility_group: None = None
    default_metadata: None = None
    override_metadata: None = None
    default_rule_set: None = None
    override_rule_set: None = None


class ModeBody(_Body):
    """A mode to be set."""

    mode: str


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body; raise RefusedError if it is too large, does not come, or has names nobody knows."""
    data = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for part in request.stream():
                data += part
                if len(data) > MOST_BODY:
                    raise RefusedError(413, f"the body has more than {MOST_BODY:,} bytes")
    except (TimeoutError, ClientDisconnect):
        raise RefusedError(408, "the body did not arrive") from None
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body cannot be read: {error}") from None


def draft_of(body: SchemaBody, *, is_normalized: bool) -> Draft:
    """Return the schema of a body."""
    try:
        kind = Kind(body.schema_type or Kind.AVRO)
    except ValueError:
        raise bad_request(f"Invalid schema type {body.schema_type}: {', '.join(Kind)} are served") from None
    given = body.references or []
    if len(given) > MOST_REFERENCES:
        raise bad_request(f"the schema has more than {MOST_REFERENCES} references")
    references = tuple(Reference(each.name, checked_subject(each.subject), _positive(each.version)) for each in given)
    return Draft(kind, body.schema, references, is_normalized, _id(body.id), _id(body.version))


def _id(value: int | None) -> int | None:
    """Clients write -1 or 0 where there is none."""
    return None if value is None or value <= 0 else _positive(value)


def _positive(value: int) -> int:
    if not 0 < value <= _MOST_INT:
        raise bad_request(f"{value} is no number between 1 and {_MOST_INT}")
    return value


def checked_subject(name: str) -> str:
    """Return a name that a subject may have."""
    if not name or len(name) > _MOST_NAME or not name.isprintable() or name.startswith(":."):
        text = f"1 to {_MOST_NAME} characters that can be printed, and no context before them"
        raise RefusedError(42208, f"The subject name {name[:50]!r} is not valid: {text}")
    return name


def flag(request: Request, name: str) -> bool:
    """Return a parameter that is true or false; anything else is refused, above all where something is deleted."""
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "false", ""):
        raise bad_request(f"the parameter {name} is true or false, not {value[:50]!r}")
    return value == "true"


def number(request: Request, name: str, default: int) -> int:
    """Return a parameter that is a number; -1 is as good as none."""
    value = request.query_params.get(name, str(default))
    if value == "-1":
        return default
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise bad_request(f"the parameter {name} is a number, not {value[:50]!r}")
    return int(value)


def schema_answer(stored: StoredSchema, text: str | None = None) -> dict[str, Any]:
    """Return what an answer says of a schema. Avro is so common that its name is left out."""
    answer: dict[str, Any] = {"schema": stored.text if text is None else text}
    if stored.kind != Kind.AVRO:
        answer["schemaType"] = stored.kind
    if stored.references:
        answer["references"] = [each.as_dict() for each in stored.references]
    return answer


def found_answer(found: Found, text: str | None = None) -> dict[str, Any]:
    """Return what an answer says of a version of a subject."""
    places = {"subject": found.subject, "version": found.version.number, "id": found.schema.id}
    return places | schema_answer(found.schema, text)


def serialized(stored: StoredSchema, references: list[Referenced]) -> str:
    """Return the text of a schema for clients that want Protobuf as a descriptor."""
    try:
        return parse(Kind(stored.kind), stored.text, references).serialized()
    except InvalidSchemaError as error:
        raise RefusedError(50001, f"The schema {stored.id} cannot be read: {error.message}") from None
