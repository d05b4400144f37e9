"""hstore values: `"a"=>"1", "b"=>NULL` <-> a map from text to text or NULL.

Specification: PostgreSQL manual, Additional Supplied Modules, "hstore", hstore External Representation.
"""

from __future__ import annotations

import re

from headgate.wire.pgtypes.codec import Codec, Value, malformed, quote, unfit

__all__ = ["HSTORE"]

_QUOTED = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_PAIR = re.compile(rf'{_QUOTED}=>(?:{_QUOTED}|NULL)(?:, (?=")|\Z)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _pairs(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    pos = 0
    while pos < len(text):
        pair = _PAIR.match(text, pos)
        if pair is None:
            raise malformed("hstore")
        pairs[_unescaped(pair[1])] = None if pair[2] is None else _unescaped(pair[2])
        pos = pair.end()
    return pairs


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _decode(text: str) -> Value:
    return dict(_pairs(text))


def _json(text: str) -> str:
    items = (f"{quote(key)}:{'null' if value is None else quote(value)}" for key, value in _pairs(text).items())
    return "{" + ",".join(items) + "}"


def _encode(value: Value) -> str:
    if not isinstance(value, dict):
        raise unfit("hstore", value)
    return ", ".join(f"{_quoted(key)}=>{_item(item)}" for key, item in value.items())


def _item(value: Value) -> str:
    if value is None:
        return "NULL"
    if not isinstance(value, str):
        raise unfit("hstore", value)
    return _quoted(value)


HSTORE = Codec("hstore", _decode, _json, _encode)
