"""DAG-CBOR in its one allowed form.

libipld decodes in microseconds, but takes integers and lengths that are longer than need be. What it decoded is
therefore encoded again: the same bytes come back only if they were in the one form. That fails for one more kind of
input, bytes that merely look like a CID, since libipld has one Python type for both. Those few are read again by the
slow reader of this module, which knows all the rules.

So in what `decode` gives, links and bytes are both `bytes`. `is_link` tells them apart, exactly: bytes that look like a
link and are none come as `Octets`.

Specification: DAG-CBOR (IPLD), and the AT Protocol's data model; RFC 8949.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import libipld

from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = [
    "MAX_DEPTH",
    "MAX_SLOW_ITEMS",
    "Octets",
    "check_count",
    "check_depth",
    "decode",
    "decode_from",
    "decode_map",
    "encode",
    "find_field",
    "head",
    "is_link",
]

# Limits of the slow reader. libipld takes a fraction of a microsecond for a value.
MAX_DEPTH: Final = 128  # of lists and maps in one another; readers in other languages stop between 32 and some thousand
MAX_SLOW_ITEMS: Final = 20_000

_UINT, _NINT, _BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(8)  # RFC 8949 section 3.1
_LINK_TAG = 42  # DAG-CBOR, Links
_SIZES = {24: 1, 25: 2, 26: 4, 27: 8}  # RFC 8949 section 3; 31, of no definite length, is not in DAG-CBOR
_LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
_CONTAINERS = (dict, list)
_INSIDE = {_LIST: 1, _MAP: 2}  # values for each that a head announces
_SIMPLES: dict[int, bool | None] = {20: False, 21: True, 22: None}  # RFC 8949 section 3.3; the others: Strictness, 3


class Octets(bytes):
    """Bytes that look like a CID and are none."""

    __slots__ = ()


def decode(raw: bytes) -> Any:
    """One value, which must take all the bytes (DAG-CBOR, Strictness, 6)."""
    try:
        value = libipld.decode_dag_cbor(raw)
        if libipld.encode_dag_cbor(value) == raw:
            return value
    except (ValueError, RecursionError) as error:
        raise _bad(str(error)[:200]) from error
    value, end = decode_from(raw, 0)
    if end != len(raw):
        raise _bad("there is more behind the value")
    return value


def decode_map(raw: bytes) -> dict[str, Any]:
    value = decode(raw)
    if not isinstance(value, dict):
        raise _bad("it is no map")
    return value


def check_depth(value: Any) -> None:
    """Raise unless lists and maps in a decoded value are in one another at most `MAX_DEPTH` deep."""
    level, depth = [value], 0
    while level := [each for each in level if each.__class__ in _CONTAINERS]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _bad("it is nested too deep")
        level = [inner for each in level for inner in (each.values() if each.__class__ is dict else each)]


def check_count(raw: bytes, most: int) -> None:
    """Raise if there are more than so many values in one, keys counted, without making any of them."""
    position, left = 0, 1
    while left:
        most -= 1
        if most < 0:
            raise _bad("it has too many values")
        major, number, position = _head(raw, position)
        if major == _TAG:
            continue  # what it is of comes next, in its place
        left += _INSIDE.get(major, 0) * number - 1
        if major in (_BYTES, _TEXT):
            position += number


def encode(value: Any) -> bytes:
    """The bytes of a value. Bytes that look like a CID become a link."""
    try:
        raw: bytes = libipld.encode_dag_cbor(value)
    except (ValueError, RecursionError, TypeError) as error:
        raise _bad(str(error)[:200]) from error
    return raw


def is_link(value: bytes) -> bool:
    """Was this, in a decoded value, a link?"""
    if isinstance(value, Octets):
        return False
    raw: bytes = libipld.encode_dag_cbor(value)
    return raw[0] == 0xD8


def head(major: int, number: int) -> bytes:
    """The first bytes of a value: its major type and a number, as short as can be."""
    if number < 24:
        return bytes((major << 5 | number,))
    if number < 1 << 8:
        return bytes((major << 5 | 24, number))
    if number < 1 << 16:
        return struct.pack(">BH", major << 5 | 25, number)
    if number < 1 << 32:
        return struct.pack(">BI", major << 5 | 26, number)
    return struct.pack(">BQ", major << 5 | 27, number)


def find_field(raw: bytes, name: str) -> tuple[int, int] | None:
    """Where in a map, from where to where, the value of a field is."""
    major, count, position = _head(raw, 0)
    if major != _MAP:
        raise _bad("it is no map")
    budget = [MAX_SLOW_ITEMS]
    for _ in range(count):
        key, start = _value(raw, position, 0, budget)
        _, position = _value(raw, start, 0, budget)
        if key == name:
            return start, position
    return None


def decode_from(raw: bytes, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and the position behind it; by all the rules, and slow."""
    return _value(raw, start, 0, [MAX_SLOW_ITEMS])


def _value(raw: bytes, start: int, depth: int, budget: list[int]) -> tuple[Any, int]:
    """`budget` holds how many more values may be read."""
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise _bad("it is nested too deep, or has too many values to be looked at one by one")
    major, number, position = _head(raw, start)
    if major == _UINT:
        return number, position
    if major == _NINT:
        return -1 - number, position
    if major in (_BYTES, _TEXT):
        return _string(raw, major, position, number)
    if major == _LIST:
        return _list(raw, position, number, depth, budget)
    if major == _MAP:
        return _map(raw, position, number, depth, budget)
    if major == _TAG:
        return _link(raw, position, number)
    return _simple(raw, start, number, position)


def _head(raw: bytes, start: int) -> tuple[int, int, int]:
    if start >= len(raw):
        raise _bad("it ends too early")
    major, short = raw[start] >> 5, raw[start] & 31
    if short < 24:
        return major, short, start + 1
    end = start + 1 + _SIZES.get(short, 0)
    if short not in _SIZES or end > len(raw):
        raise _bad("a length or number is cut off, or of no known size")
    number = int.from_bytes(raw[start + 1 : end], "big")
    if number < _LEAST[short] and major != _SIMPLE:  # DAG-CBOR, Strictness, 2; RFC 8949 section 4.2.1
        raise _bad("a length or number is longer than need be")
    return major, number, end


def _string(raw: bytes, major: int, position: int, size: int) -> tuple[Any, int]:
    end = position + size
    if end > len(raw):
        raise _bad("a text or byte string is cut off")
    found = raw[position:end]
    if major == _TEXT:
        try:
            return str(found, "utf-8"), end
        except UnicodeDecodeError as error:
            raise _bad("a text is not UTF-8") from error
    looks_like_link = libipld.encode_dag_cbor(found)[0] == 0xD8
    return (Octets(found) if looks_like_link else found), end


def _list(raw: bytes, position: int, count: int, depth: int, budget: list[int]) -> tuple[Any, int]:
    values = []
    for _ in range(count):  # each value takes a byte or fails, so a huge count ends with the bytes
        value, position = _value(raw, position, depth + 1, budget)
        values.append(value)
    return values, position


def _map(raw: bytes, position: int, count: int, depth: int, budget: list[int]) -> tuple[Any, int]:
    values: dict[str, Any] = {}
    last = (-1, b"")
    for _ in range(count):
        key, position = _value(raw, position, depth + 1, budget)
        if not isinstance(key, str):  # DAG-CBOR, Map Keys
            raise _bad("a key is no text")
        order = (len(key.encode()), key.encode())  # DAG-CBOR, Strictness, 2: by length first
        if order <= last:
            raise _bad("keys are not in order, or come twice")
        last = order
        values[key], position = _value(raw, position, depth + 1, budget)
    return values, position


def _link(raw: bytes, position: int, tag: int) -> tuple[bytes, int]:
    """DAG-CBOR, Links: tag 42 of a byte string, which is a 0 and the CID. There are no other tags (Strictness, 1)."""
    major, size, position = _head(raw, position)
    end = position + size
    if tag != _LINK_TAG or major != _BYTES or size < 2 or end > len(raw) or raw[position] != 0:
        raise _bad("a tag is no link")
    return raw[position + 1 : end], end


def _simple(raw: bytes, start: int, number: int, position: int) -> tuple[Any, int]:
    """DAG-CBOR, Strictness, 3 to 5: true, false, null, and floats of 64 bits that are numbers."""
    if raw[start] & 31 == 27:
        value = struct.unpack(">d", raw[start + 1 : position])[0]
        if value != value or value in (float("inf"), float("-inf")):
            raise _bad("a float is no number")
        return value, position
    if position != start + 1 or number not in _SIMPLES:
        raise _bad("a simple value is none of true, false and null")
    return _SIMPLES[number], position


def _bad(what: str) -> AtprotoError:
    return AtprotoError(Reason.BAD_CBOR, f"not DAG-CBOR: {what}")
