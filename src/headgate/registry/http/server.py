"""The registry's HTTP server: paths to answers, answers to JSON, and how it is doing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self
from urllib.parse import unquote

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headgate.model import ConfigError
from headgate.registry.database import Database
from headgate.registry.errors import RefusedError
from headgate.registry.http.answers import Answer, Answers, Text
from headgate.registry.http.bodies import checked_subject
from headgate.registry.http.guard import check_access
from headgate.registry.install import prepare
from headgate.registry.options import RegistryOptions
from headgate.runtime.ending import end, stopped_by_signals
from headgate.runtime.listening import listen

__all__ = ["CONTENT_TYPE", "RegistryServer", "serve"]

_log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_LOOK_S = 5.0
_STOP_S = 10.0


class _Server(uvicorn.Server):
    """Signals are ours."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RegistryServer:
    """HTTP server of a schema registry.

    `async with RegistryServer.open(options) as server: ...`
    """

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self._database = Database(options.postgres_url)
        self._routes = [(method, path.split("/"), answer) for method, path, answer in Answers(self._database).table]
        self._counted: Counter[str] = Counter()
        self._told: dict[str, Any] = {}
        self._server = _Server(_config(options, self._answer))
        self._socket = listen(options.host, options.port, backlog=128, where="registry.port")

    @classmethod
    @asynccontextmanager
    async def open(cls, options: RegistryOptions) -> AsyncIterator[Self]:
        """Install what the schema has not had, and serve until the block ends; then finish what is under way."""
        await asyncio.to_thread(prepare, options.postgres_url)
        registry = cls(options)
        await registry._database.open()
        watching = asyncio.create_task(registry._watch())
        server = asyncio.create_task(registry._server.serve(sockets=[registry._socket]))
        try:
            yield registry
        finally:
            registry._server.should_exit = True
            await asyncio.wait([server], timeout=_STOP_S)
            await end(server, watching)
            registry._socket.close()
            await registry._database.close()

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if self.options.tls_cert else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def metrics(self) -> dict[str, Any]:
        return {"connections": len(self._server.server_state.connections), **self._counts(), **self._told}

    def _counts(self) -> dict[str, int]:
        return {f"requests_{name}_total": self._counted[name] for name in ("answered", "refused", "failed")}

    async def _watch(self) -> None:
        """What there is in the registry, for those who watch it; the first cause of a trouble stays until a success."""
        while True:
            try:
                async with self._database.transaction() as reading:
                    ((subjects, schemas, versions),) = await reading.rows("counts")
                self._told = {"subjects": subjects, "schemas": schemas, "versions": versions}
            except Exception as error:
                self._told.setdefault("troubles", {"database": {"why": str(error.__cause__ or error)}})
            await asyncio.sleep(_LOOK_S)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._respond(Request(scope, receive))
        kind = "failed" if response.status_code >= 500 else "refused" if response.status_code >= 400 else "answered"
        self._counted[kind] += 1
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            parts = _parts(request)
            if parts == ["health"] and request.method == "GET":
                return _json({"status": "ok"})
            check_access(request, self.options.users)
            answer, arguments = self._route(request.method, parts)
            return _json(await answer(request, *arguments))
        except RefusedError as error:
            return _refusal(error)
        except Exception as error:  # one request that finds a fault of ours must not end the connection without a word
            _log.exception("a request failed")
            return _refusal(RefusedError(500, f"Internal Server Error: {type(error).__name__}"))

    def _route(self, method: str, parts: Sequence[str]) -> tuple[Answer, list[str]]:
        fitting = [route for route in self._routes if _fits(route[1], parts)]
        exact = [route for route in fitting if route[1] == list(parts)] or fitting
        for allowed, path, answer in exact:
            if allowed == method or (allowed, method) == ("GET", "HEAD"):
                given = [part for part, pattern in zip(parts, path, strict=True) if pattern == "*"]
                if "subjects" in path[:2] or path[0] in ("config", "mode"):
                    given[:1] = [checked_subject(each) for each in given[:1]]
                return answer, given
        raise RefusedError(405, "HTTP 405 Method Not Allowed") if fitting else RefusedError(404, "HTTP 404 Not Found")


def _config(options: RegistryOptions, application: Any) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            interface="asgi3",
            timeout_graceful_shutdown=2,
            limit_concurrency=options.max_connections,
            server_header=False,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )
        config.load()
    except OSError as error:  # the certificate, the key, or that they do not belong together
        raise ConfigError(
            f"the certificate cannot be used: {error}", where="registry.tls_cert", remedy="name the PEM files of both"
        ) from None
    return config


def _parts(request: Request) -> list[str]:
    """The path before its escapes are read, or a subject with a slash in it would be two."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.decode("ascii", "replace").split("?")[0].strip("/")
    try:
        return [unquote(part, errors="strict") for part in path.split("/")]
    except UnicodeDecodeError:
        raise RefusedError(400, "the path is no UTF-8") from None


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    return len(pattern) == len(parts) and all(each in ("*", part) for each, part in zip(pattern, parts, strict=True))


def _json(value: Any) -> Response:
    if isinstance(value, Text):
        return Response(str(value), media_type=CONTENT_TYPE)
    return Response(json.dumps(value, separators=(",", ":")), media_type=CONTENT_TYPE)


def _refusal(error: RefusedError) -> Response:
    body = json.dumps({"error_code": error.code, "message": error.message})
    headers = {"www-authenticate": 'Basic realm="headgate registry"'} if error.status == 401 else None
    return Response(body, status_code=error.status, media_type=CONTENT_TYPE, headers=headers)


def serve(
    options: RegistryOptions,
    *,
    ready: Callable[[RegistryServer], None],
    until: Callable[[asyncio.Event], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends it at once. `until` may set the event, too."""
    asyncio.run(_serve(options, ready, until))


async def _serve(
    options: RegistryOptions,
    ready: Callable[[RegistryServer], None],
    until: Callable[[asyncio.Event], None] | None,
) -> None:
    stop = stopped_by_signals()
    if until:
        until(stop)
    async with RegistryServer.open(options) as registry:
        ready(registry)
        await stop.wait()
