"""What requests carry: JSON objects and numbers, checked before anybody uses them."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from headgate.model import HeadgateError, UsageError

__all__ = ["bad_request", "json_body", "number", "numbers"]

_MOST_BYTES = 4 << 20


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
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise bad_request("the body is not an object")
    return fields


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
