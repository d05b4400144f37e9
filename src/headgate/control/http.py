"""The HTTP control plane: the server, and who may ask it."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response

from headgate.control.endpoints import routes
from headgate.control.problems import problem
from headgate.control.service_routes import Controlled, control_endpoints
from headgate.model.listening import listen

__all__ = ["ControlServer", "application"]


def application(service: Controlled, token: str | None) -> Starlette:
    """The routes, behind the token when one is set."""
    return Starlette(
        routes=routes(control_endpoints(lambda: service)),
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(token))],
    )


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
        self._socket = listen(host, port, backlog=128, where="control.port")
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
