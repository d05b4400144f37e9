"""What the control plane answers: one list from which the server, the OpenAPI file and the tests are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headgate import __version__

__all__ = ["Endpoint", "openapi", "routes"]

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. Paths in `also` are older names of the same thing."""

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    query: Mapping[str, str] = field(default_factory=dict)  # parameter -> what it means
    body: str = ""  # what a request carries, for people
    status: int = 200
    problems: Mapping[int, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    media_type: str = "application/json"


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """The routes of a server."""
    return [
        Route(path, endpoint.handler, methods=[endpoint.method])
        for endpoint in endpoints
        for path in (endpoint.path, *endpoint.also)
    ]


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 description."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        for path in (endpoint.path, *endpoint.also):
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headgate control plane",
            "version": __version__,
            "description": "Watch and steer the pipelines of one headgate.",
        },
        "security": [{}, {"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
        },
    }


_PROBLEM = {
    "type": "object",
    "required": ["status", "title", "remedy"],
    "properties": {"status": {"type": "integer"}, "title": {"type": "string"}, "remedy": {"type": "string"}},
}


def _operation(endpoint: Endpoint, path: str) -> dict[str, Any]:
    in_path = [part[1:-1].split(":")[0] for part in path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in endpoint.query.items()
    ]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    problems = {401: "A token is required.", 403: "The request comes from another web page.", **endpoint.problems}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": {
            str(endpoint.status): {"description": "As asked.", "content": {endpoint.media_type: {}}},
            **{str(code): {"description": text, "content": problem} for code, text in sorted(problems.items())},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body:
        operation["requestBody"] = {
            "description": endpoint.body,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    return operation
