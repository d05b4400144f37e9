"""Composite values: text <-> maps by attribute name.

`(1,"a b",)` has three fields; an empty one is NULL, an empty string is `""`. Text with another number of fields than
the catalog knows was written before or after an ALTER TYPE: it stays text.

Specification: PostgreSQL manual, Data Types, "Composite Types", Composite Type Input and Output Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.wire.pgtypes.codec import Codec, Value, malformed, quote, unfit

__all__ = ["composite_codec"]

_FIELD = re.compile(r'"(?P<quoted>[^"\\]*(?:(?:""|\\.)[^"\\]*)*)"|(?P<bare>[^"(),\\]*)', re.DOTALL)
_ESCAPED = re.compile(r'""|\\(.)', re.DOTALL)
_NEEDS_QUOTES = re.compile(r'[(),"\\\s]')


def composite_codec(attributes: Iterable[tuple[str, Codec]]) -> Codec:
    """The codec of a composite type, from its attributes' names and codecs."""
    known = tuple(attributes)

    def decode(text: str) -> Value:
        fields = _fields(text, len(known))
        if len(fields) != len(known):
            return text
        return {
            name: None if field is None else codec.decode(field)
            for (name, codec), field in zip(known, fields, strict=True)
        }

    def json(text: str) -> str:
        fields = _fields(text, len(known))
        if len(fields) != len(known):
            return quote(text)
        items = (
            f"{quote(name)}:{'null' if field is None else codec.json(field)}"
            for (name, codec), field in zip(known, fields, strict=True)
        )
        return "{" + ",".join(items) + "}"

    def encode(value: Value) -> str:
        if isinstance(value, str):
            return value
        if not isinstance(value, dict) or len(value) != len(known):
            raise unfit("composite", value)
        return f"({','.join(_written(codec, value.get(name)) for name, codec in known)})"

    return Codec("composite", decode, json, encode, {name: codec.rule for name, codec in known})


def _fields(text: str, count: int) -> list[str | None]:
    """The fields' texts. Each step consumes a field and a comma."""
    if text == "()":
        return [None] if count == 1 else []  # no attribute and one NULL attribute look the same
    end = len(text) - 1
    fields: list[str | None] = []
    pos = 0
    while pos < end and text[pos] == ("," if fields else "("):
        match = _FIELD.match(text, pos + 1, end)
        assert match is not None  # the bare form also matches nothing at all
        fields.append(_field(match))
        pos = match.end()
    if pos != end or text[end:] != ")" or not fields:
        raise malformed("composite")
    return fields


def _field(match: re.Match[str]) -> str | None:
    quoted: str | None = match["quoted"]
    if quoted is None:
        return match["bare"] or None
    return _ESCAPED.sub(lambda escape: escape[1] or '"', quoted)


def _written(codec: Codec, value: Value) -> str:
    if value is None:
        return ""
    text = codec.encode(value)
    if text and _NEEDS_QUOTES.search(text) is None:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
