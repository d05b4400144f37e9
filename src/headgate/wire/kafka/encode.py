"""Messages to bytes: a writer is compiled from a message's fields, once per version.

A writer appends buffers to a list. Record batches go into the list as they are, so that a big answer can be handed to
`writelines` without being copied.

Specification: Apache Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from headgate.model import ProtocolError
from headgate.wire.kafka.schema import RECORDS, STRING, UUID_KIND, Body, Field, Kind, fields_of

__all__ = ["Buffers", "string", "uvarint", "write_message"]

Buffers: TypeAlias = list[bytes | memoryview]
Writer: TypeAlias = Callable[[Buffers, Any], None]

_REMEDY = "This is a bug in the code that made the message."
_INT16, _INT32 = struct.Struct(">h").pack, struct.Struct(">i").pack
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
_NULL_STRUCT, _PRESENT_STRUCT = b"\xff", b"\x01"  # KIP-893


def write_message(out: Buffers, message: Body, version: int, *, flexible: bool) -> None:
    """Append a message's buffers; a value that the protocol has no place for raises `ProtocolError`."""
    try:
        _writer(type(message), version, flexible)(out, message)
    except ProtocolError as error:
        raise error.at(_place(message, version)) from None
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(
            f"a value cannot be sent: {error}", remedy=_REMEDY, where=_place(message, version)
        ) from None


def _place(message: Body, version: int) -> str:
    return f"{type(message).__name__} v{version}"


def uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, the lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | None) -> bytes:
    """A nullable text with an int16 length, as request headers have it in every version."""
    if text is None:
        return _INT16(-1)
    raw = text.encode()
    return _INT16(len(raw)) + raw


def _compact_length(size: int) -> bytes:
    return uvarint(size + 1)  # 0 stands for null


@cache
def _writer(cls: type[Body], version: int, flexible: bool) -> Writer:
    steps = _steps(fields_of(cls), version, flexible)

    def write(out: Buffers, message: Any) -> None:
        for step in steps:
            step(out, message)

    return write


def _steps(fields: Sequence[Field], version: int, flexible: bool) -> list[Writer]:
    here = [field for field in fields if field.tag is None and field.exists(version)]
    steps: list[Writer] = []
    for is_fixed, group in groupby(here, lambda field: bool(field.code(version))):
        neighbours = list(group)
        if is_fixed:
            steps.append(_fixed_step(neighbours, version))
        else:
            steps.extend(_value_step(field, version, flexible) for field in neighbours)
    if flexible:
        tagged = [field for field in fields if field.tag is not None and field.exists(version)]
        steps.append(_tags_step(sorted(tagged, key=lambda field: field.tag or 0), version))
    return steps


def _fixed_step(fields: list[Field], version: int) -> Writer:
    pack = struct.Struct(">" + "".join(field.code(version) for field in fields)).pack
    values = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:
        return lambda out, message: out.append(pack(values(message)))
    return lambda out, message: out.append(pack(*values(message)))


def _value_step(field: Field, version: int, flexible: bool) -> Writer:
    value, write = attrgetter(field.name), _value_writer(field, version, flexible)
    return lambda out, message: write(out, value(message))


def _tags_step(fields: list[Field], version: int) -> Writer:
    if not fields:
        return lambda out, message: out.append(b"\0")
    writers = [(field, attrgetter(field.name), _value_writer(field, version, flexible=True)) for field in fields]

    def step(out: Buffers, message: Any) -> None:
        present = [
            (field.tag, write, item) for field, value, write in writers if (item := value(message)) != field.default
        ]
        out.append(uvarint(len(present)))
        for number, write, item in present:
            content: Buffers = []
            write(content, item)
            out.append(uvarint(number or 0) + uvarint(sum(map(len, content))))
            out += content

    return step


def _value_writer(field: Field, version: int, flexible: bool) -> Writer:
    write = (_array_writer if field.is_array else _single_writer)(field.kind, version, flexible)
    is_struct = not field.is_array and not isinstance(field.kind, Kind)
    if is_struct and field.may_be_null(version):
        return _optional_struct(write)
    return _guarded(field, write, _null_mark(field, flexible) if field.may_be_null(version) else None)


def _null_mark(field: Field, flexible: bool) -> bytes:
    if flexible:
        return b"\0"
    return _INT16(-1) if field.kind is STRING and not field.is_array else _INT32(-1)


def _guarded(field: Field, write: Writer, null: bytes | None) -> Writer:
    """Writes null as its mark, or refuses it."""

    def write_guarded(out: Buffers, value: Any) -> None:
        if value is not None:
            write(out, value)
        elif null is not None:
            out.append(null)
        else:
            raise ProtocolError(f"{field.name} must not be null", remedy=_REMEDY)

    return write_guarded


def _optional_struct(write: Writer) -> Writer:
    def write_optional(out: Buffers, value: Any) -> None:
        if value is None:
            out.append(_NULL_STRUCT)
        else:
            out.append(_PRESENT_STRUCT)
            write(out, value)

    return write_optional


def _single_writer(kind: Kind | type[Body], version: int, flexible: bool) -> Writer:
    if not isinstance(kind, Kind):
        return _writer(kind, version, flexible)
    if kind.code:
        pack = struct.Struct(f">{kind.code}").pack
        return lambda out, value: out.append(pack(value))
    if kind is UUID_KIND:
        return lambda out, value: out.append(value.bytes)
    if kind is STRING:
        return _string_writer(_compact_length if flexible else _INT16)
    write = _bytes_writer(_compact_length if flexible else _INT32)
    return _parts_writer(write, _compact_length if flexible else _INT32) if kind is RECORDS else write


def _string_writer(length: Callable[[int], bytes]) -> Writer:
    def write(out: Buffers, text: str) -> None:
        raw = text.encode()
        if len(raw) > 32767:  # compact texts have no other bound, but readers keep this one
            raise ProtocolError(f"a text of {len(raw)} bytes is too long", remedy=_REMEDY)
        out.append(length(len(raw)) + raw)

    return write


def _bytes_writer(length: Callable[[int], bytes]) -> Writer:
    def write(out: Buffers, data: bytes | memoryview) -> None:
        out.append(length(len(data)))
        out.append(data)

    return write


def _parts_writer(write_bytes: Writer, length: Callable[[int], bytes]) -> Writer:
    def write(out: Buffers, data: bytes | memoryview | tuple[bytes | memoryview, ...]) -> None:
        if not isinstance(data, tuple):
            write_bytes(out, data)
            return
        out.append(length(sum(map(len, data))))
        out.extend(data)

    return write


def _array_writer(kind: Kind | type[Body], version: int, flexible: bool) -> Writer:
    length = _compact_length if flexible else _INT32
    if isinstance(kind, Kind) and kind.code:
        code = kind.code
        return lambda out, values: out.append(length(len(values)) + struct.pack(f">{len(values)}{code}", *values))
    write_item = _single_writer(kind, version, flexible)

    def write(out: Buffers, values: Sequence[Any]) -> None:
        out.append(length(len(values)))
        for value in values:
            write_item(out, value)

    return write
