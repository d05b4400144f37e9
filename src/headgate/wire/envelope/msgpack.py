"""MessagePack, as much of it as events need: nil, booleans, 64-bit integers, floats, text, bytes, lists, maps.

Written bytes are canonical: integers and lengths take their shortest form, floats are always 64 bits wide, maps keep
the order of their keys. Reading accepts every form and refuses extension types, keys that are not text, duplicate
keys, deep nesting, and bytes that are missing or left over. Its work is bounded by the bytes that are there: every
item takes one at least, and nothing is reserved ahead for a size that is only claimed.

Specification: MessagePack specification, "Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any

import msgspec

from headgate.model import DataError, ProtocolError
from headgate.wire.pgtypes import Value

__all__ = ["MAX_DEPTH", "packb", "unpackb"]

MAX_DEPTH = 64

_ENCODER = msgspec.msgpack.Encoder()


def packb(value: Value) -> bytes:
    """The canonical bytes of a value."""
    _check_nesting(value, MAX_DEPTH)
    try:
        return _ENCODER.encode(value)
    except (OverflowError, ValueError):
        raise DataError("a value is too large for MessagePack, or its text is not Unicode") from None


def _check_nesting(value: Value, depth: int) -> None:
    if isinstance(value, list | dict):
        if depth == 0:
            raise DataError("a value is nested too deeply for an event")
        for item in value.values() if isinstance(value, dict) else value:
            _check_nesting(item, depth - 1)


def unpackb(data: bytes) -> Value:
    """Read exactly one value."""
    reader = _Reader(data)
    try:
        value = reader.value(MAX_DEPTH)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ProtocolError("MessagePack ends too early, or its text is not UTF-8") from None
    if reader.pos != len(data):
        raise ProtocolError("bytes are left over after a MessagePack value")
    return value


class _Reader:
    """A place in the bytes."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def take(self, layout: Struct) -> Any:
        (value,) = layout.unpack_from(self.data, self.pos)
        self.pos += layout.size
        return value

    def raw(self, size: int) -> bytes:
        value = self.data[self.pos : self.pos + size]
        if len(value) != size:
            raise IndexError
        self.pos += size
        return value

    def value(self, depth: int) -> Value:
        tag = self.data[self.pos]
        self.pos += 1
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0x90:
            return self.map(tag & 0x0F, depth)
        if tag < 0xA0:
            return self.list(tag & 0x0F, depth)
        if tag < 0xC0:
            return self.raw(tag & 0x1F).decode()
        read = _READ.get(tag)
        if read is None:
            raise ProtocolError(f"MessagePack tag 0x{tag:02X} has no place in an event")
        return read(self, depth)

    def list(self, size: int, depth: int) -> list[Value]:
        _check_depth(depth)
        return [self.value(depth - 1) for _ in range(size)]

    def map(self, size: int, depth: int) -> dict[str, Value]:
        _check_depth(depth)
        items: dict[str, Value] = {}
        for _ in range(size):
            key = self.value(depth - 1)
            if not isinstance(key, str) or key in items:
                raise ProtocolError("a MessagePack map has a key that is not text, or twice the same key")
            items[key] = self.value(depth - 1)
        return items


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise ProtocolError("MessagePack is nested too deeply for an event")


def _number(code: str) -> Callable[[_Reader, int], Value]:
    layout = Struct(f"!{code}")
    return lambda reader, _depth: reader.take(layout)


def _sized(code: str, read: Callable[[_Reader, int, int], Value]) -> Callable[[_Reader, int], Value]:
    layout = Struct(f"!{code}")
    return lambda reader, depth: read(reader, reader.take(layout), depth)


def _read_text(reader: _Reader, size: int, _depth: int) -> str:
    return reader.raw(size).decode()


def _read_bytes(reader: _Reader, size: int, _depth: int) -> bytes:
    return reader.raw(size)


_READ: dict[int, Callable[[_Reader, int], Value]] = {
    0xC0: lambda _reader, _depth: None,
    0xC2: lambda _reader, _depth: False,
    0xC3: lambda _reader, _depth: True,
    **{0xC4 + i: _sized(code, _read_bytes) for i, code in enumerate("BHI")},
    **{0xCA + i: _number(code) for i, code in enumerate("fdBHIQbhiq")},
    **{0xD9 + i: _sized(code, _read_text) for i, code in enumerate("BHI")},
    **{0xDC + i: _sized(code, _Reader.list) for i, code in enumerate("HI")},
    **{0xDE + i: _sized(code, _Reader.map) for i, code in enumerate("HI")},
}
