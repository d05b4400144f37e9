"""What requests carry: JSON objects and numbers, checked before anybody uses them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from headgate.model import HeadgateError, UsageError
from headgate.model.dead_letter import Selection

__all__ = [
    "SELECTORS",
    "bad_request",
    "everything",
    "json_body",
    "number",
    "refuse_unknown",
    "selection",
    "text",
    "whole",
]

SELECTORS = ("numbers", "reason", "all")  # of dead letters; a body has one of them

_MOST_BYTES = 4 << 20
_MOST_DEPTH = 100


async def json_body(request: Request, *keys: str) -> dict[str, Any]:
    """The body as an object with no keys but these; empty if there is none."""
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _MOST_BYTES:
            raise bad_request("the body is larger than 4 MiB")
    if not raw:
        return {}
    try:
        fields = json.loads(raw, parse_constant=_no_number)
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()  # a part of it may come back in the answer
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise bad_request("the body is not an object")
    if _depth(fields) > _MOST_DEPTH:
        raise bad_request(f"the body is nested more than {_MOST_DEPTH} deep")
    refuse_unknown(fields, keys)
    return fields


def refuse_unknown(fields: Mapping[str, Any], keys: Sequence[str], where: str = "the body") -> None:
    """A key that nobody reads may be one that was meant to say less: what is not understood is not done."""
    for unknown in fields.keys() - set(keys):
        near = difflib.get_close_matches(unknown, keys, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(keys) or 'none'}"
        raise UsageError(f"{where} has an unknown key {unknown[:40]!r}", remedy=f"{hint} See GET /openapi.json")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _depth(value: Any) -> int:
    """How deep it is nested; without recursion, which is what the limit is for."""
    depth, level = 0, [value]
    while level:
        inner = [each for each in level if isinstance(each, (dict, list))]
        level = [child for each in inner for child in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth


def text(body: dict[str, Any], name: str) -> str | None:
    """A text in a body, or nothing."""
    if name not in body:
        return None
    found = body[name]
    if not isinstance(found, str) or not found:
        raise bad_request(f"{name} is a text")
    return found


def whole(value: Any) -> int | None:
    """A number from 0 to 2^63 - 1 in a body, or None. JSON has one sort of numbers: 2.0 is 2."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def selection(body: dict[str, Any]) -> Selection:
    """The dead letters that a body chooses by one of `SELECTORS`."""
    numbers = body.get("numbers", [])
    numbers = [whole(each) for each in numbers] if isinstance(numbers, list) else [None]
    if None in numbers:
        raise bad_request("numbers is a list of numbers")
    if "numbers" in body and not numbers:
        raise bad_request("numbers is empty")
    return Selection(tuple(numbers), text(body, "reason"), everything(body))


def everything(body: dict[str, Any]) -> bool:
    """Whether a body says `"all": true`; nothing else stands for everything."""
    if "all" in body and body["all"] is not True:
        raise bad_request("all is true, or left out")
    return "all" in body


def number(text: str | None, default: int) -> int:
    """A number in a path or a query."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_request(f"{text[:40]!r} is not a number")
    return int(text)


def bad_request(what: str) -> HeadgateError:
    return UsageError(what, remedy="see GET /openapi.json")
