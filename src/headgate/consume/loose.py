"""JSON's objects and lists as the bytes of their values, without a look into them.

The fast reader refuses half a surrogate pair (`"\\ud800"`) and values that are nested a thousand times, both of which
PostgreSQL allows inside a `json` value and which therefore stand in events. Where it does, values are only measured: by
their quotes and brackets.

White space around a value belongs to it where a value of `json` may stand (`spaced_members`, `spaced_items`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

__all__ = ["raw_items", "raw_members", "spaced_items", "spaced_members"]

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(rb"[-+.\w]+")
_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


def raw_members(data: bytes) -> dict[str, bytes]:
    """The members of an object. What is no object raises `msgspec.DecodeError`."""
    try:
        return {name: bytes(value) for name, value in _members.decode(data).items()}
    except (msgspec.DecodeError, RecursionError):
        return {name: value.strip() for name, value in spaced_members(data).items()}


def raw_items(data: bytes) -> list[bytes]:
    """The items of a list. What is no list raises `msgspec.DecodeError`."""
    try:
        return [bytes(value) for value in _items.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        return [value.strip() for value in spaced_items(data)]


def spaced_members(data: bytes) -> dict[str, bytes]:
    """The members of an object, each with the white space around it."""
    return {msgspec.json.decode(name): value for name, value in _parts(data, b"{", b"}")}


def spaced_items(data: bytes) -> list[bytes]:
    """The items of a list, each with the white space around it."""
    return [value for _, value in _parts(data, b"[", b"]")]


def _parts(data: bytes, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values; the name of a list's item is empty."""
    at = _expect(data, 0, begin)
    is_first = True
    while data[(after := _skip(data, at)) : after + 1] != end:
        if not is_first:
            at = _expect(data, at, b",")
        is_first, name = False, b""
        if begin == b"{":
            start = _skip(data, at)
            at = _match(_STRING, data, start)
            name, at = data[start:at], _expect(data, at, b":")
        behind = _skip(data, _value_end(data, _skip(data, at)))
        yield name, data[at:behind]
        at = behind
    if _skip(data, after + 1) != len(data):
        raise msgspec.DecodeError("more than one value")


def _value_end(data: bytes, at: int) -> int:
    first = data[at : at + 1]
    if first == b'"':
        return _match(_STRING, data, at)
    if first not in (b"{", b"["):
        return _match(_WORD, data, at)
    depth = 0
    for token in _NESTING.finditer(data, at):
        depth += 1 if token[0] in (b"{", b"[") else -1 if token[0] in (b"}", b"]") else 0
        if depth == 0:
            return token.end()
    raise msgspec.DecodeError("a value does not end")


def _skip(data: bytes, at: int) -> int:
    return _match(_SPACE, data, at)


def _expect(data: bytes, at: int, sign: bytes) -> int:
    """The place behind a sign that must stand next."""
    at = _skip(data, at)
    if data[at : at + 1] != sign:
        raise msgspec.DecodeError(f"{sign.decode()} expected at {at}")
    return at + 1


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    if found is None:
        raise msgspec.DecodeError(f"no value at {at}")
    return found.end()
