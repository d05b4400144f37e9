"""Array text <-> nested lists.

`{1,NULL,"a b"}` is a list, `{{1,2},{3,4}}` a list of lists, `{}` the empty list. Elements are read by the element
type's codec. An array whose lower bounds are not 1 (`[0:1]={1,2}`) stays text, since a list could not say so:
PostgreSQL prints bounds exactly then.

Specification: PostgreSQL manual, Data Types, "Arrays", Array Input and Output Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from headgate.wire.pgtypes.codec import Codec, Value, malformed, quote, unfit

__all__ = ["array_codec"]

_MAX_DIMENSIONS = 6  # MAXDIM in PostgreSQL
_BOUNDED = re.compile(r"(\[-?\d+:-?\d+\]){1,6}=\{", re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

_Tree: TypeAlias = "list[str | _Tree | None]"


def array_codec(element: Codec, delimiter: str) -> Codec:
    """The codec of arrays over an element type. Nearly every type's delimiter is a comma; box has a semicolon."""
    tokens = _tokens(delimiter)
    needs_quotes = re.compile(rf'[{{}}"\\\s{re.escape(delimiter)}]')

    def decode(text: str) -> Value:
        return text if _BOUNDED.match(text) else _values(_parse(tokens, text), element.decode)

    def json(text: str) -> str:
        return quote(text) if _BOUNDED.match(text) else _json(_parse(tokens, text), element.json)

    def written(item: Value) -> str:
        if item is None:
            return "NULL"
        if isinstance(item, list) and element.name != "array":
            return nested(item)
        text = element.encode(item)
        if text and text.upper() != "NULL" and needs_quotes.search(text) is None:
            return text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def nested(items: list[Value]) -> str:
        return "{" + delimiter.join(map(written, items)) + "}"

    def encode(value: Value) -> str:
        if isinstance(value, str) and _BOUNDED.match(value):
            return value
        if not isinstance(value, list):
            raise unfit("array", value)
        return nested(value)

    return Codec("array", decode, json, encode, [element.rule])


def _tokens(delimiter: str) -> re.Pattern[str]:
    d = re.escape(delimiter)
    quoted = r'"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"'
    return re.compile(rf'(?P<open>\{{)|(?P<close>\}})|(?P<next>{d})|{quoted}|(?P<bare>[^{{}}"\\{d}]+)', re.DOTALL)


def _parse(tokens: re.Pattern[str], text: str) -> _Tree:
    """The elements' texts in their nesting. Each step consumes at least one character."""
    stack: list[_Tree] = []
    complete = False  # an element stands before this place, so only a delimiter or a brace may follow
    pos = 0
    while (token := tokens.match(text, pos)) is not None:
        pos, kind = token.end(), token.lastgroup
        if kind == "close" and stack and (complete or not stack[-1]):
            array, complete = stack.pop(), True
            if not stack and pos == len(text):
                return array
        elif kind == "next" and complete and stack:
            complete = False
        elif kind == "open" and not complete and len(stack) < _MAX_DIMENSIONS:
            inner: _Tree = []
            if stack:
                stack[-1].append(inner)
            stack.append(inner)
        elif kind in ("quoted", "bare") and not complete and stack:
            stack[-1].append(_element(token))
            complete = True
        else:
            break
    raise malformed("array")


def _element(token: re.Match[str]) -> str | None:
    bare: str | None = token["bare"]
    if bare is None:
        return _ESCAPED.sub(r"\1", token["quoted"])
    return None if bare == "NULL" else bare  # an element that is spelled NULL without being one is quoted


def _values(tree: _Tree, decode: Callable[[str], Value]) -> list[Value]:
    return [None if item is None else decode(item) if isinstance(item, str) else _values(item, decode) for item in tree]


def _json(tree: _Tree, json: Callable[[str], str]) -> str:
    items = ("null" if item is None else json(item) if isinstance(item, str) else _json(item, json) for item in tree)
    return f"[{','.join(items)}]"
