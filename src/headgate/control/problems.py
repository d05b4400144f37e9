"""Errors over HTTP: RFC 9457, with the remedy beside the title."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

__all__ = ["problem"]


def problem(status: int, title: str, remedy: str) -> Response:
    """The answer that says what is wrong and what to do."""
    body = {"status": status, "title": title, "remedy": remedy}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")
