"""Errors over HTTP: RFC 9457, with the remedy beside the title."""

from __future__ import annotations

import math

from starlette.responses import JSONResponse, Response

__all__ = ["problem", "too_many"]


def problem(status: int, title: str, remedy: str) -> Response:
    """The answer that says what is wrong and what to do."""
    body = {"status": status, "title": title, "remedy": remedy}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def too_many(wait_s: float) -> Response:
    """The answer to an address that has sent too many wrong tokens."""
    refusal = problem(429, "too many wrong tokens came from this address", "wait, then send the right one")
    refusal.headers["retry-after"] = str(math.ceil(wait_s))
    return refusal
