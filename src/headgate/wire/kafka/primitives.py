"""Single values of Kafka's protocol, read from a frame: lengths, varints, texts, bytes, UUIDs.

A reader takes the frame and a position, and gives the value and the position behind it. It may leave with `IndexError`,
`struct.error` or `UnicodeDecodeError`, which `decode` turns into `ProtocolError`.

Specification: Apache Kafka protocol guide, "Protocol Primitive Types".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

from headgate.model import ProtocolError
from headgate.wire.kafka.schema import Kind

__all__ = [
    "REMEDY",
    "Reader",
    "broken",
    "check_null",
    "compact_length",
    "copy",
    "fixed",
    "length16",
    "length32",
    "read_string",
    "read_uuid",
    "read_uvarint",
    "sized",
    "text",
    "view",
]

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

REMEDY = "Check that the peer speaks Kafka's protocol in a version that it was offered."
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def broken(what: str) -> ProtocolError:
    return ProtocolError(what, remedy=REMEDY)


def read_uvarint(frame: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: seven bits a byte, the lowest first."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
    raise broken("a varint is longer than 32 bits")


def length16(frame: bytes, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(frame, position)[0], position + 2


def length32(frame: bytes, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(frame, position)[0], position + 4


def compact_length(frame: bytes, position: int) -> tuple[int, int]:
    length, position = read_uvarint(frame, position)
    return length - 1, position  # KIP-482: 0 stands for null


def fixed(kind: Kind) -> Reader:
    unpack, size = struct.Struct(f">{kind.code}").unpack_from, kind.size
    return lambda frame, position: (unpack(frame, position)[0], position + size)


def read_uuid(frame: bytes, position: int) -> tuple[UUID, int]:
    end = position + 16
    if end > len(frame):
        raise IndexError
    return UUID(bytes=frame[position:end]), end


def text(frame: bytes, start: int, end: int) -> str:
    return str(frame[start:end], "utf-8")


def copy(frame: bytes, start: int, end: int) -> bytes:
    return frame[start:end]


def view(frame: bytes, start: int, end: int) -> memoryview:
    return memoryview(frame)[start:end]


def sized(length: Reader, take: Callable[[bytes, int, int], Any], can_be_null: bool) -> Reader:
    def read(frame: bytes, position: int) -> tuple[Any, int]:
        size, position = length(frame, position)
        if size < 0:
            check_null(size, can_be_null)
            return None, position
        end = position + size
        if end > len(frame):
            raise IndexError
        return take(frame, position, end), end

    return read


def check_null(size: int, can_be_null: bool) -> None:
    if size != -1:
        raise broken(f"a length of {size}")
    if not can_be_null:
        raise broken("null where a value must be")


# A nullable text with an int16 length, as request headers have it in every version, flexible or not: older brokers must
# be able to read them (the definition of Kafka's RequestHeader says so).
read_string = sized(length16, text, can_be_null=True)
