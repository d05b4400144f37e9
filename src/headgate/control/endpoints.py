"""What the control plane answers: one list from which the server, the OpenAPI file and the tests are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headgate import __version__
from headgate.control.problems import problem
from headgate.control.schemas import LARGEST_NUMBER, SCHEMAS, refer

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
    answer: str = ""  # its name in `SCHEMAS`; without one it is text
    query: Mapping[str, str] = field(default_factory=dict)  # parameter -> what it means
    numbers: frozenset[str] = frozenset()  # parameters that are numbers
    body: str = ""  # what a request carries, for people
    request: str = ""  # the body's name in `SCHEMAS`
    status: int = 200
    other: Mapping[int, str] = field(default_factory=dict)  # more statuses with the same answer, and what they say
    problems: Mapping[int, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    media_type: str = "application/json"


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """The routes of a server: one for each path, so that it knows all methods of it."""
    by_path: dict[str, dict[str, Handler]] = {}
    for endpoint in endpoints:
        for path in (endpoint.path, *endpoint.also):
            by_path.setdefault(path, {})[endpoint.method] = endpoint.handler
    plain_first = sorted(by_path, key=lambda path: path.count("{"))  # `letters/purge` is no `letters/{number}`
    return [Route(path, _by_method(by_path[path]), methods=[*_METHODS]) for path in plain_first]


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    known = {**handlers, **({"HEAD": handlers["GET"]} if "GET" in handlers else {})}

    async def handle(request: Request) -> Response:
        handler = known.get(request.method)
        if handler is not None:
            return await handler(request)
        allowed = ", ".join(sorted(known))
        refusal = problem(405, f"{request.method} is not for this path", f"use {allowed}")
        refusal.headers["allow"] = allowed
        return refusal

    return handle


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
            "schemas": dict(sorted(SCHEMAS.items())),
        },
    }


def _operation(endpoint: Endpoint, path: str) -> dict[str, Any]:
    refused = {"application/problem+json": {"schema": refer("Problem")}}
    problems = {
        401: "A token is required.",
        403: "The request comes from another web page.",
        429: "Too many wrong tokens came from this address.",
        **endpoint.problems,
    }
    good = {endpoint.status: "As asked.", **endpoint.other}
    content = {endpoint.media_type: {"schema": refer(endpoint.answer) if endpoint.answer else {"type": "string"}}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": {
            **{str(code): {"description": text, "content": content} for code, text in good.items()},
            **{str(code): {"description": text, "content": refused} for code, text in sorted(problems.items())},
        },
    }
    if parameters := _parameters(endpoint, path):
        operation["parameters"] = parameters
    if endpoint.request:
        operation["requestBody"] = {
            "description": endpoint.body,
            "required": True,
            "content": {"application/json": {"schema": refer(endpoint.request)}},
        }
    return operation


def _parameters(endpoint: Endpoint, path: str) -> list[dict[str, Any]]:
    def kind(name: str) -> dict[str, Any]:
        if name in endpoint.numbers:
            return {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER}
        return {"type": "string"}

    in_path = [part[1:-1].split(":")[0] for part in path.split("/") if part.startswith("{")]
    return [
        *({"name": name, "in": "path", "required": True, "schema": kind(name)} for name in in_path),
        *(
            {"name": name, "in": "query", "required": False, "schema": kind(name), "description": text}
            for name, text in endpoint.query.items()
        ),
    ]
