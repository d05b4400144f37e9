"""Bytes to messages: a reader is compiled from a message's fields, once per version.

A reader takes the frame and a position, and gives the value and the position behind it. Neighbours of a fixed size are
read with one `struct` call. Every length and count is checked against the bytes that are left before anything is made
of it, so a frame costs no more memory than its own size allows.

Readers let `IndexError`, `struct.error` and `UnicodeDecodeError` pass; `read_message` turns them into `ProtocolError`.

Specification: Apache Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from headgate.model import ProtocolError
from headgate.wire.kafka.primitives import (
    REMEDY,
    Reader,
    broken,
    check_null,
    compact_length,
    copy,
    fixed,
    length16,
    length32,
    read_uuid,
    read_uvarint,
    sized,
    text,
    view,
)
from headgate.wire.kafka.schema import BYTES, RECORDS, STRING, UUID_KIND, Body, Field, Kind, fields_of

__all__ = ["read_message", "skip_tags"]

# Appends one or several values to the list and gives the next position.
_Step: TypeAlias = Callable[[bytes, int, list[Any]], int]
_B = TypeVar("_B", bound=Body)


def read_message(
    cls: type[_B], frame: bytes, position: int, version: int, *, flexible: bool, allow_rest: bool = False
) -> _B:
    """The message that fills a frame from `position` to its end; anything else raises `ProtocolError`.

    `allow_rest` lets bytes behind the message pass.
    """
    try:
        message, end = _reader(cls, version, flexible)(frame, position)
    except ProtocolError as error:
        raise error.at(_place(cls, version)) from None
    except (IndexError, struct.error):
        raise ProtocolError("the message ends too early", remedy=REMEDY, where=_place(cls, version)) from None
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8", remedy=REMEDY, where=_place(cls, version)) from None
    if end != len(frame) and not allow_rest:
        left = len(frame) - end
        raise ProtocolError(f"{left} bytes follow the message", remedy=REMEDY, where=_place(cls, version))
    assert isinstance(message, cls)
    return message


def _place(cls: type[Body], version: int) -> str:
    return f"{cls.__name__} v{version}"


@cache
def _reader(cls: type[Body], version: int, flexible: bool) -> Reader:
    steps = _steps(fields_of(cls), version, flexible)

    def read(frame: bytes, position: int) -> tuple[Body, int]:
        values: list[Any] = []
        for step in steps:
            position = step(frame, position, values)
        return cls(*values), position

    return read


def _steps(fields: Sequence[Field], version: int, flexible: bool) -> list[_Step]:
    steps: list[_Step] = []
    for shape, group in groupby(fields, lambda field: _shape(field, version)):
        neighbours = list(group)
        if shape == "fixed":
            steps.append(_fixed_step([field.code(version) for field in neighbours]))
        elif shape == "absent":  # here, or among the tagged fields
            steps.append(_default_step([field.default for field in neighbours]))
        else:
            steps.extend(_value_step(_value_reader(field, version, flexible)) for field in neighbours)
    if flexible:
        tagged = {
            field.tag: (index, _value_reader(field, version, flexible))
            for index, field in enumerate(fields)
            if field.tag is not None and field.exists(version)
        }
        steps.append(_tags_step(tagged))
    return steps


def _shape(field: Field, version: int) -> str:
    if field.tag is not None or not field.exists(version):
        return "absent"
    return "fixed" if field.code(version) else "value"


def _fixed_step(codes: list[str]) -> _Step:
    layout = struct.Struct(">" + "".join(codes))
    unpack, size = layout.unpack_from, layout.size

    def step(frame: bytes, position: int, values: list[Any]) -> int:
        values += unpack(frame, position)
        return position + size

    return step


def _default_step(defaults: list[Any]) -> _Step:
    def step(frame: bytes, position: int, values: list[Any]) -> int:
        values += defaults
        return position

    return step


def _value_step(read: Reader) -> _Step:
    def step(frame: bytes, position: int, values: list[Any]) -> int:
        value, position = read(frame, position)
        values.append(value)
        return position

    return step


def _tags_step(tagged: dict[int, tuple[int, Reader]]) -> _Step:
    def step(frame: bytes, position: int, values: list[Any]) -> int:
        if frame[position] == 0:
            return position + 1
        count, position = read_uvarint(frame, position)
        previous = -1
        for _ in range(count):  # ends with the frame: every round takes two bytes
            number, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            end = position + size
            if number <= previous:  # KIP-482: in ascending order
                raise broken(f"the tagged field {number} comes twice or out of order")
            if end > len(frame):
                raise IndexError
            if number in tagged:  # others are of a newer peer and are to be skipped (KIP-482)
                index, read = tagged[number]
                values[index], position = read(frame, position)
                if position != end:
                    raise broken(f"the tagged field {number} is not as long as it says")
            previous, position = number, end
        return position

    return step


skip_tags = _tags_step({})


def _value_reader(field: Field, version: int, flexible: bool) -> Reader:
    can_be_null = field.may_be_null(version)
    if field.is_array:
        return _array_reader(field.kind, version, flexible, can_be_null)
    return _single_reader(field.kind, version, flexible, can_be_null)


def _single_reader(kind: Kind | type[Body], version: int, flexible: bool, can_be_null: bool) -> Reader:
    if not isinstance(kind, Kind):
        read = _reader(kind, version, flexible)
        return _optional_struct(read) if can_be_null else read
    if kind.code:
        return fixed(kind)
    if kind is UUID_KIND:
        return read_uuid
    wide = compact_length if flexible else length32
    if kind is STRING:
        return sized(compact_length if flexible else length16, text, can_be_null)
    return sized(wide, {BYTES: copy, RECORDS: view}[kind], can_be_null)


def _optional_struct(read: Reader) -> Reader:
    def read_optional(frame: bytes, position: int) -> tuple[Any, int]:
        # KIP-893 (nullable structs): a signed byte, negative for null.
        return read(frame, position + 1) if frame[position] < 0x80 else (None, position + 1)

    return read_optional


def _array_reader(kind: Kind | type[Body], version: int, flexible: bool, can_be_null: bool) -> Reader:
    length = compact_length if flexible else length32
    least = _least_bytes(kind, version, flexible)
    read_items = _items_reader(kind, version, flexible)

    def read(frame: bytes, position: int) -> tuple[Any, int]:
        count, position = length(frame, position)
        if count < 0:
            check_null(count, can_be_null)
            return None, position
        if count * least > len(frame) - position:
            raise broken(f"an array of {count} items in {len(frame) - position} bytes")
        return read_items(frame, position, count)

    return read


def _items_reader(
    kind: Kind | type[Body], version: int, flexible: bool
) -> Callable[[bytes, int, int], tuple[Any, int]]:
    if isinstance(kind, Kind) and kind.code:
        code, size = kind.code, kind.size
        return lambda frame, position, count: (
            struct.unpack_from(f">{count}{code}", frame, position),
            position + count * size,
        )
    read = _single_reader(kind, version, flexible, can_be_null=False)

    def read_items(frame: bytes, position: int, count: int) -> tuple[tuple[Any, ...], int]:
        items = []
        for _ in range(count):
            item, position = read(frame, position)
            items.append(item)
        return tuple(items), position

    return read_items


def _least_bytes(kind: Kind | type[Body], version: int, flexible: bool) -> int:
    """How few bytes a value may take; at least one, so that a count is always bounded by the frame."""
    if not isinstance(kind, Kind):
        regular = (field for field in fields_of(kind) if field.tag is None and field.exists(version))
        return max(1, sum(_least_field_bytes(field, version, flexible) for field in regular) + flexible)
    if kind.code:
        return kind.size
    if kind is UUID_KIND:
        return 16
    if flexible:
        return 1
    return 2 if kind is STRING else 4


def _least_field_bytes(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.may_be_null(version) and not isinstance(field.kind, Kind):
        return 1
    return _least_bytes(field.kind, version, flexible)
