"""The HTTP control plane: health, readiness, status, metrics, and the order to stop."""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headgate.control import metrics
from headgate.control.dead_letter_routes import dead_letter_endpoints
from headgate.control.endpoints import Endpoint, openapi, routes
from headgate.control.pipeline_routes import pipeline_endpoints
from headgate.control.pipelines import PipelineControl
from headgate.control.problems import problem
from headgate.control.snapshots import SnapshotMaker, snapshot_endpoints
from headgate.model import HeadgateError, OccupiedError
from headgate.pipeline.report import Report

__all__ = ["ControlServer", "Controlled", "application"]


class Controlled(SnapshotMaker, Protocol):
    """What the HTTP interface needs of the service."""

    def reports(self) -> list[Report]: ...

    def status(self) -> dict[str, Any]: ...

    def control(self) -> PipelineControl: ...

    def stream_info(self, stream: str) -> dict[str, Any] | None: ...

    def request_stop(self) -> None: ...


def application(service: Controlled, token: str | None) -> Starlette:
    """The routes, behind the token when one is set."""

    async def health(_: Request) -> Response:
        """The process is alive."""
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        """Every pipeline runs; a load balancer or an orchestrator asks this."""
        states = {report.pipeline: report.status.value for report in service.reports()}
        good = bool(states) and all(state == "running" for state in states.values())
        return JSONResponse({"ready": good, "pipelines": states}, status_code=200 if good else 503)

    async def status(_: Request) -> Response:
        return JSONResponse(service.status())

    async def metrics_page(_: Request) -> Response:
        return Response(metrics.render(service.reports(), service.snapshots()), media_type=metrics.CONTENT_TYPE)

    async def stream_info(request: Request) -> Response:
        """A JetStream stream that a destination writes to."""
        name = request.query_params.get("stream", "")
        try:
            info = await to_thread.run_sync(service.stream_info, name)
        except HeadgateError as error:
            return problem(502, str(error), error.remedy)
        if info is None:
            return problem(404, f"no destination writes to a stream {name!r}", "add ?stream=NAME of a nats destination")
        return JSONResponse(info)

    async def shutdown(_: Request) -> Response:
        service.request_stop()
        return JSONResponse({"status": "stopping"}, status_code=202)

    async def description(_: Request) -> Response:
        return JSONResponse(openapi(endpoints))

    endpoints = [
        Endpoint("GET", "/health", health, "Whether the process is alive; needs no token.", "service"),
        Endpoint(
            "GET", "/ready", ready, "Whether every pipeline runs.", "service", problems={503: "Not every one does."}
        ),
        Endpoint("GET", "/status", status, "Everything about every pipeline.", "service"),
        Endpoint("GET", "/metrics", metrics_page, "Metrics for Prometheus.", "service", media_type="text/plain"),
        Endpoint("GET", "/openapi.json", description, "This description.", "service"),
        Endpoint(
            "GET",
            "/streams/info",
            stream_info,
            "A JetStream stream that a destination writes to.",
            "service",
            query={"stream": "Its name."},
            problems={404: "No destination writes to it.", 502: "NATS cannot be reached."},
        ),
        *pipeline_endpoints(service.control),
        *dead_letter_endpoints(service.control),
        *snapshot_endpoints(service),
        Endpoint("POST", "/shutdown", shutdown, "Stop everything, cleanly.", "service", status=202),
    ]
    return Starlette(routes=routes(endpoints), middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(token))])


def _guard(token: str | None) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    async def check(request: Request, forward: Callable[[Request], Awaitable[Response]]) -> Response:
        if _foreign_origin(request):
            return problem(403, "requests from other web pages are refused", "call this address directly")
        if token is not None and request.url.path != "/health" and not _authorised(request, token):
            return problem(401, "a token is required", "send the header: Authorization: Bearer TOKEN")
        return await forward(request)

    return check


def _foreign_origin(request: Request) -> bool:
    """A page in a browser on this machine must not be able to steer headgate behind its user's back."""
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


def _authorised(request: Request, token: str) -> bool:
    given = request.headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


class ControlServer:
    """Serves the application from a thread of its own."""

    def __init__(self, service: Controlled, host: str, port: int, token: str | None) -> None:
        self._socket = _listen(host, port)
        config = uvicorn.Config(
            application(service, token), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="control", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise OccupiedError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where="control.port",
            remedy="stop the other program, or set [control] port to another number (0 picks a free one)",
        ) from None
    return listener
