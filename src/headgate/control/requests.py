"""What requests carry: JSON objects and numbers, checked before anybody uses them."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from headgate.model import HeadgateError, UsageError

__all__ = ["bad_request", "json_body", "number", "numbers", "text"]

_MOST_BYTES = 4 << 20
_MOST_DEPTH = 100


async def json_body(request: Request) -> dict[str, Any]:
    """The body as an object; empty if there is none."""
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
    return fields


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
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise bad_request(f"{name} is a text")
    return found


def numbers(body: dict[str, Any]) -> list[int]:
    """The numbers of dead letters in a body."""
    found = body.get("numbers", [])
    if not isinstance(found, list) or not all(type(each) is int and 0 <= each < 2**63 for each in found):
        raise bad_request("numbers is a list of numbers")
    return found


def number(text: str | None, default: int) -> int:
    """A number in a path or a query."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_request(f"{text[:40]!r} is not a number")
    return int(text)


def bad_request(what: str) -> HeadgateError:
    return UsageError(what, remedy="see GET /openapi.json")
