"""The HTTP control plane: the server, and who may ask it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.control.dashboard import Attempts, Dashboard, address_of
from headgate.control.endpoints import routes
from headgate.control.problems import problem, too_many
from headgate.control.service_routes import Controlled, control_endpoints
from headgate.runtime.access import has_token, is_foreign_host, is_foreign_origin
from headgate.runtime.listening import listen

__all__ = ["ControlServer", "application"]


def application(service: Controlled, token: str | None, dashboard: Dashboard, attempts: Attempts) -> Starlette:
    """The routes, behind the token when one is set."""
    return Starlette(
        routes=[*routes(control_endpoints(lambda: service)), *dashboard.routes()],
        exception_handlers={HTTPException: _refuse, Exception: _fail},
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(token, dashboard, attempts))],
    )


async def _refuse(request: Request, error: Exception) -> Response:
    """What the router itself refuses: a path that nobody serves, or a method of a page."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(404, f"there is nothing at {request.url.path[:200]}", "see GET /openapi.json")
    refusal = problem(error.status_code, str(error.detail), "see GET /openapi.json")
    refusal.headers.update(error.headers or {})
    return refusal


async def _fail(_: Request, error: Exception) -> Response:
    """What nobody has foreseen; the server's log has where."""
    return problem(500, f"this is a fault of headgate: {type(error).__name__}", "see the log, and report it")


def _guard(
    token: str | None, dashboard: Dashboard, attempts: Attempts
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    async def check(request: Request, forward: Callable[[Request], Awaitable[Response]]) -> Response:
        if is_foreign_origin(request.headers.get("origin"), request.headers.get("host")):
            return problem(403, "requests from other web pages are refused", "call this address directly")
        if token is None and is_foreign_host(request.headers.get("host")):
            fix = "ask for 127.0.0.1 or localhost; behind a proxy with a name, set control.token"
            return problem(403, "without a token this server answers to addresses only, not to names", fix)
        if token is None or request.url.path == "/health":
            return await forward(request)
        # Whoever is logged in goes on: behind a proxy, everybody has the address of the one who guesses.
        if dashboard.is_logged_in(request):
            return await forward(request)
        address = address_of(request)
        if wait_s := attempts.wait_s(address):
            return too_many(wait_s)
        given = request.headers.get("authorization")
        if has_token(given, token):
            return await forward(request)
        if given is not None:
            attempts.fail(address)
        if dashboard.is_for(request) and given is None and not request.url.path.startswith("/dashboard/live/"):
            back = request.url.path if not request.url.query else f"{request.url.path}?{request.url.query}"
            return RedirectResponse(f"/login?{urlencode({'back': back})}" if back != "/" else "/login", 303)
        return problem(401, "a token is required", "send the header: Authorization: Bearer TOKEN")

    return check


class ControlServer:
    """Serves the application from a thread of its own."""

    def __init__(self, service: Controlled, host: str, port: int, token: str | None) -> None:
        self._socket = listen(host, port, backlog=128, where="control.port")
        attempts = Attempts()
        self.dashboard = Dashboard(lambda: service, token, attempts, self._socket.getsockname()[1])
        application_ = application(service, token, self.dashboard, attempts)
        config = uvicorn.Config(
            application_, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
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
        self.dashboard.start()

    def stop(self) -> None:
        self.dashboard.stop()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()
