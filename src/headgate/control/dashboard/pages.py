"""The pages: the dashboard, the part of it that is fetched again and again, and the login.

Whoever has the token may trade it for a cookie, which opens these pages and nothing else.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from importlib import resources
from urllib.parse import parse_qs

import psycopg
from anyio import to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from headgate import __version__
from headgate.control.dashboard.panels import PANELS, Panel, Shown, health, unread
from headgate.control.dashboard.sessions import LIFETIME_S, Attempts, Sessions
from headgate.control.problems import too_many
from headgate.model import HeadgateError

__all__ = ["address_of", "dashboard_routes", "is_logged_in"]

_COOKIE = "headgate"
_OPEN = ("/login", "/dashboard/static/")  # what one sees before one has logged in
_MOST_BYTES = 10_000
_FRESH_S = 1.0  # however many look, servers are asked once in so long
_TYPES = {"dashboard.js": "text/javascript", "dashboard.css": "text/css"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Not "no-referrer": with that, browsers say of our own login that they do not know where it comes from.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


def is_logged_in(request: Request, sessions: Sessions) -> bool:
    """Whether a request for one of these pages has the cookie, or asks for what needs none."""
    path = request.url.path
    if path.startswith(_OPEN):
        return True
    is_ours = path == "/" or path.startswith("/dashboard/")
    return is_ours and sessions.is_open(request.cookies.get(_COOKIE, ""))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _environment() -> Environment:
    made = Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    made.filters |= {"age": _age, "health": health, "number": lambda value: f"{value or 0:,.0f}"}
    return made


class _Pages:
    """What the routes do."""

    def __init__(self, service: Callable[[], Shown], token: str | None, sessions: Sessions, attempts: Attempts) -> None:
        self._service = service
        self._token = token
        self._sessions = sessions
        self._attempts = attempts
        self._templates = _environment()
        self._lock = threading.Lock()
        self._panels = ""
        self._rendered_at = float("-inf")

    async def page(self, _: Request) -> Response:
        panels = await to_thread.run_sync(self._render_panels)
        return self._html("page.html", panels=panels, version=__version__, has_login=self._token is not None)

    async def panels(self, _: Request) -> Response:
        return HTMLResponse(await to_thread.run_sync(self._render_panels), headers=_HEADERS)

    async def login(self, request: Request) -> Response:
        if request.method != "POST":
            return self._html("login.html", wrong=False)
        if wait_s := self._attempts.wait_s(address_of(request)):
            return too_many(wait_s)
        given = (await _form(request)).get("token", [""])[0]
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            self._attempts.fail(address_of(request))
            return self._html("login.html", status=401, wrong=True)
        answer = RedirectResponse("/", 303, headers=_HEADERS)
        if self._token is not None:
            answer.set_cookie(
                _COOKIE, self._sessions.begin(), max_age=LIFETIME_S, httponly=True, samesite="strict",
                secure=request.url.scheme == "https",
            )  # fmt: skip
        return answer

    async def logout(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(_COOKIE, ""))
        answer = RedirectResponse("/login", 303, headers=_HEADERS)
        answer.delete_cookie(_COOKIE, httponly=True, samesite="strict")
        return answer

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            return Response(status_code=404, headers=_HEADERS)
        content = resources.files(__package__).joinpath("static", name).read_bytes()
        return Response(content, media_type=_TYPES[name], headers=_HEADERS)

    def _html(self, template: str, *, status: int = 200, **values: object) -> Response:
        text = self._templates.get_template(template).render(**values)
        return HTMLResponse(text, status_code=status, headers=_HEADERS)

    def _render_panels(self) -> str:
        with self._lock:
            if time.monotonic() - self._rendered_at > _FRESH_S:
                service = self._service()
                self._panels = "\n".join(self._render(panel, service) for panel in PANELS)
                self._rendered_at = time.monotonic()
            return self._panels

    def _render(self, panel: Panel, service: Shown) -> str:
        """A panel that cannot be shown does not take the others with it."""
        try:
            found = panel.find(service)
            template = self._templates.get_template(f"{panel.name}.html")
        except (psycopg.Error, HeadgateError) as error:
            found = {"problem": unread(error)}
            template = self._templates.get_template("problem.html")
        return template.render(panel=panel, **found)


async def _form(request: Request) -> dict[str, list[str]]:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _MOST_BYTES:
            return {}
    try:
        return parse_qs(raw.decode(), max_num_fields=10)
    except ValueError:
        return {}


def address_of(request: Request) -> str:
    """Return the address of the client, by which wrong tokens are counted."""
    return request.client.host if request.client else ""


def dashboard_routes(
    service: Callable[[], Shown], token: str | None, sessions: Sessions, attempts: Attempts
) -> list[Route]:
    """The pages. Who may see them is for the server to ask."""
    pages = _Pages(service, token, sessions, attempts)
    return [
        Route("/", pages.page, methods=["GET"]),
        Route("/dashboard/panels", pages.panels, methods=["GET"]),
        Route("/dashboard/static/{name}", pages.static, methods=["GET"]),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/dashboard/logout", pages.logout, methods=["POST"]),
    ]
