"""JSON's objects and lists as the bytes of their values, without a look into them.

The fast reader refuses half a surrogate pair (`"\\ud800"`), which PostgreSQL allows inside a `json` value and which
therefore stands in events. Python's own reader takes it, and tells where each value ends.
"""

from __future__ import annotations

import json
import re

import msgspec

__all__ = ["raw_items", "raw_members"]

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_scan = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]*")


def raw_members(data: bytes) -> dict[str, bytes]:
    """The members of an object. What is no object raises `msgspec.DecodeError`."""
    try:
        return {name: bytes(value) for name, value in _members.decode(data).items()}
    except msgspec.DecodeError:
        return _loosely(data, "{", "}")[0]


def raw_items(data: bytes) -> list[bytes]:
    """The items of a list. What is no list raises `msgspec.DecodeError`."""
    try:
        return [bytes(value) for value in _items.decode(data)]
    except msgspec.DecodeError:
        return _loosely(data, "[", "]")[1]


def _loosely(data: bytes, begin: str, end: str) -> tuple[dict[str, bytes], list[bytes]]:
    try:
        return _parts(data.decode(), begin, end)
    except (ValueError, IndexError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _parts(text: str, begin: str, end: str) -> tuple[dict[str, bytes], list[bytes]]:
    members: dict[str, bytes] = {}
    items: list[bytes] = []
    at = _expect(text, 0, begin)
    while text[at] != end:
        if members or items:
            at = _expect(text, at, ",")
        name = None
        if begin == "{":
            name, at = _scan(text, at)
            at = _expect(text, at, ":")
        _, stop = _scan(text, at)
        value = text[at:stop].encode()
        if name is None:
            items.append(value)
        else:
            members[name] = value
        at = _skip(text, stop)
    if _skip(text, at + 1) != len(text):
        raise ValueError("more than one value")
    return members, items


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _expect(text: str, at: int, sign: str) -> int:
    """The next value behind a sign that must stand there."""
    at = _skip(text, at)
    if text[at] != sign:
        raise ValueError(f"{sign} expected at {at}")
    return _skip(text, at + 1)
