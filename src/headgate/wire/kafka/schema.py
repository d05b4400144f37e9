"""Kafka's message definitions as Python classes: a field's annotation says how it is sent.

    class FetchPartition(Body, frozen=True):
        partition: Int32 = 0                                        in every version
        log_start_offset: Annotated[Int64, since(5)] = -1           from version 5 on
        topic: Annotated[String, between(0, 12)] = ""               in versions 0 to 12
        topics: Annotated[tuple[Topic, ...] | None, nullable(1)]    an array that may be null from version 1 on
        cluster_id: Annotated[String | None, since(12), tag(0)]     a tagged field (KIP-482)

The order of the fields is the order on the wire. A field that a version does not have is left out when written, and
has its default when read. `fields_of` reads the annotations; `decode` and `encode` compile them, once per version.

Specification: Apache Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from struct import calcsize
from typing import Annotated, Any, TypeAlias, Union
from uuid import UUID

import msgspec

__all__ = [
    "NO_UUID",
    "Body",
    "Bool",
    "Bytes",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "RecordParts",
    "Records",
    "String",
    "Uint16",
    "Uuid",
    "between",
    "fields_of",
    "nullable",
    "since",
    "tag",
]

_FOREVER = 32767  # versions are int16
NO_UUID = UUID(int=0)  # stands for "no topic id"


class Body(msgspec.Struct, frozen=True):
    """A request, a response, or a part of one."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of the protocol. `code` is its letter for `struct`, if it has a fixed size and needs no conversion."""

    name: str
    code: str = ""

    @property
    def size(self) -> int:
        return calcsize(f">{self.code}")


STRING, BYTES, RECORDS, UUID_KIND = Kind("string"), Kind("bytes"), Kind("records"), Kind("uuid")

Bool: TypeAlias = Annotated[bool, Kind("bool", "?")]
Int8: TypeAlias = Annotated[int, Kind("int8", "b")]
Int16: TypeAlias = Annotated[int, Kind("int16", "h")]
Int32: TypeAlias = Annotated[int, Kind("int32", "i")]
Int64: TypeAlias = Annotated[int, Kind("int64", "q")]
Float64: TypeAlias = Annotated[float, Kind("float64", "d")]
Uint16: TypeAlias = Annotated[int, Kind("uint16", "H")]
Uuid: TypeAlias = Annotated[UUID, UUID_KIND]
String: TypeAlias = Annotated[str, STRING]
Bytes: TypeAlias = Annotated[bytes, BYTES]
# Read as a view into the frame, so that record batches are not copied; it keeps the frame alive.
Records: TypeAlias = Annotated[bytes | memoryview, RECORDS]
# Written one after the other: the batches of a Fetch response lie in many places.
RecordParts: TypeAlias = Annotated[bytes | memoryview | tuple[bytes | memoryview, ...], RECORDS]


@dataclass(frozen=True, slots=True)
class _Versions:
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Nullable:
    first: int


@dataclass(frozen=True, slots=True)
class _Tag:
    number: int


def since(version: int) -> _Versions:
    """The field exists from this version on."""
    return _Versions(version, _FOREVER)


def between(first: int, last: int) -> _Versions:
    """The field exists in these versions, both included."""
    return _Versions(first, last)


def nullable(version: int) -> _Nullable:
    """The field may be null from this version on; an optional type without this may be null in every version."""
    return _Nullable(version)


def tag(number: int) -> _Tag:
    """The field is sent among the tagged fields (KIP-482), and only if it differs from its default."""
    return _Tag(number)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, as its annotation declares it."""

    name: str
    kind: Kind | type[Body]
    default: Any
    is_array: bool
    first: int
    last: int
    nullable_from: int
    tag: int | None

    def exists(self, version: int) -> bool:
        return self.first <= version <= self.last

    def may_be_null(self, version: int) -> bool:
        return version >= self.nullable_from

    def code(self, version: int) -> str:
        """The letter for `struct`, or nothing if the field is not of a fixed size in its place."""
        if not isinstance(self.kind, Kind) or self.is_array or self.tag is not None or not self.exists(version):
            return ""
        return self.kind.code


@cache
def fields_of(cls: type[Body]) -> tuple[Field, ...]:
    """The fields of a message in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    if len(names) != len(defaults):
        raise TypeError(f"{cls.__name__} has a field without a default")
    return tuple(_field(name, hints[name], default) for name, default in zip(names, defaults, strict=True))


def _field(name: str, hint: Any, default: Any) -> Field:
    marks: list[Any] = []
    is_array = is_optional = False
    while True:
        origin = typing.get_origin(hint)
        if origin is Annotated:
            marks += hint.__metadata__
            hint = hint.__origin__
        elif origin in (Union, types.UnionType) and not any(isinstance(mark, Kind) for mark in marks):
            (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
            is_optional = True
        elif origin is tuple:
            hint, is_array = typing.get_args(hint)[0], True
        else:
            break
    kind = next((mark for mark in marks if isinstance(mark, Kind)), hint)
    versions = next((mark for mark in marks if isinstance(mark, _Versions)), _Versions(0, _FOREVER))
    null_from = next((mark.first for mark in marks if isinstance(mark, _Nullable)), 0) if is_optional else _FOREVER + 1
    number = next((mark.number for mark in marks if isinstance(mark, _Tag)), None)
    return Field(name, kind, default, is_array, versions.first, versions.last, null_from, number)
