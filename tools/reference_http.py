"""The page of the control plane: every path, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.control.service_routes import description
from tools.tables import code, page, table

__all__ = ["http_page"]

_INTRODUCTION = """
The control plane's HTTP interface, by default at `http://127.0.0.1:8710`. [openapi.json](../openapi.json) has all of it
with a schema for every body and answer, and so has `GET /openapi.json` of a running headgate.
[The control plane](../configuration.md#control-plane) explains tokens, `Host` and `Origin`, and refusals.

Every path may answer 401 (a token is required), 403 (the request comes from another web page) and 429 (too many wrong
tokens); whatever is refused is `application/problem+json` with a `remedy`. `{key}` is the name of a pipeline or of its
source.
"""
_ALWAYS = {"401", "403", "429"}
_FINE = "As asked."
_OLDER = ("/sources", "/connectors")


def http_page() -> str:
    """Return the page of every path of the control plane."""
    rows = [
        _row(method, path, operation)
        for path, operations in description()["paths"].items()
        if not path.startswith(_OLDER)
        for method, operation in operations.items()
    ]
    columns = ["request", "what it does", "parameters and body", "answers"]
    older = "`/sources/...` and `/connectors/...` are other names of `/pipelines/...`, but for dead letters."
    return page("HTTP reference", "the endpoints of `headgate.control`", _INTRODUCTION, table(columns, rows), older)


def _row(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    answers = {status: each["description"] for status, each in operation["responses"].items() if status not in _ALWAYS}
    told = [status if text == _FINE else f"{status}: {text}" for status, text in answers.items()]
    return [code(f"{method.upper()} {path}"), operation["summary"], " ".join(_takes(operation)), "<br>".join(told)]


def _takes(operation: dict[str, Any]) -> Iterator[str]:
    for each in operation.get("parameters", ()):
        if each["in"] == "query":
            yield f"{code('?' + each['name'])}: {each['description']}"
    if body := operation.get("requestBody"):
        yield f"Body: {body['description']}"
