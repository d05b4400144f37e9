"""The routes of the dashboard: pages, their changes, the buttons, and the login.

Whoever has the token may trade it for a cookie, which opens these pages and nothing else. Without a token in the
configuration there is nobody to ask for, and the pages only show.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headgate import __version__
from headgate.control.dashboard.actions import ACTIONS, explain
from headgate.control.dashboard.forms import checked_form, read_form
from headgate.control.dashboard.gateway import PRODUCED, produce
from headgate.control.dashboard.history import History
from headgate.control.dashboard.live import Live, TooManyError
from headgate.control.dashboard.rendering import Renderer, View
from headgate.control.dashboard.sessions import LIFETIME_S, Attempts, Session, Sessions
from headgate.control.dashboard.tail import unreadable
from headgate.control.dashboard.threads import in_thread
from headgate.control.dashboard.views import PAGES, Page, Shown
from headgate.control.pipelines import NotFoundError
from headgate.control.problems import problem, too_many
from headgate.control.requests import number, refuse_unknown
from headgate.model import HeadgateError, Kind

__all__ = ["Dashboard", "address_of"]

_OPEN = ("/login", "/dashboard/static/")  # what one sees before one has logged in
_MOST_LOGIN_BYTES = 10_000
_MOST_LETTERS = 50
_TYPES = {"dashboard.js": "text/javascript", "dashboard.css": "text/css", "icon.svg": "image/svg+xml"}
_STATUS = {Kind.AUTH: 403, Kind.OCCUPIED: 409, Kind.USAGE: 400, Kind.CONFIG: 422}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": with that, browsers say of our own login that they do not know where it comes from.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_STREAM_HEADERS = {**_HEADERS, "x-accel-buffering": "no"}

Handler = Callable[[Request], Awaitable[Response]]


def address_of(request: Request) -> str:
    """Return the address of the client, by which wrong tokens are counted."""
    return request.client.host if request.client else ""


class Dashboard:
    """The pages of one control plane."""

    def __init__(self, service: Callable[[], Shown], token: str | None, attempts: Attempts, port: int) -> None:
        self._service = service
        self._cookie = f"headgate-{port}"  # a browser sends the cookies of a host to all its ports
        self._token = token
        self._attempts = attempts
        self._sessions = Sessions()
        self._history = History(service)
        self._renderer = Renderer(service, self._history)
        self._live = Live(self._renderer)

    @property
    def viewers(self) -> int:
        """How many pages are being followed now."""
        return self._live.viewers

    def start(self) -> None:
        self._history.start()

    def stop(self) -> None:
        self._history.stop()
        self._live.close()

    def is_for(self, request: Request) -> bool:
        """Whether a request is one for a page that shows itself to a browser."""
        path = request.url.path
        return request.method == "GET" and (path == "/" or path.startswith("/dashboard/"))

    def is_logged_in(self, request: Request) -> bool:
        """Whether a request for one of these pages has the cookie, or asks for what needs none."""
        path = request.url.path
        if path.startswith(_OPEN):
            return True
        is_ours = path == "/" or path.startswith("/dashboard/")
        return is_ours and self._sessions.is_open(request.cookies.get(self._cookie, ""))

    def routes(self) -> list[Route]:
        """The pages. Who may see them is for the server to ask."""
        pages = [
            route
            for page in PAGES
            for route in (
                Route("/" if page.path == "/" else f"/dashboard{page.path}", self._telling(self._page, page)),
                Route(f"/dashboard/live{page.path}", self._telling(self._follow, page)),
            )
        ]
        letters = "/dashboard/dead-letters/{name}"
        return [
            *pages,
            Route(letters, self._telling(self._letters), methods=["GET"]),
            Route(f"{letters}/{{number}}", self._telling(self._letter), methods=["GET"]),
            Route("/dashboard/explain", self._telling(self._explain), methods=["GET", "POST"]),
            Route("/dashboard/pipelines/{name}/{action}", self._telling(self._act), methods=["POST"]),
            Route("/dashboard/gateway/produce", self._telling(self._produce), methods=["POST"]),
            Route("/dashboard/static/{name}", self._static, methods=["GET"]),
            Route("/login", self._telling(self._login), methods=["GET", "POST"]),
            Route("/dashboard/logout", self._telling(self._logout), methods=["POST"]),
        ]

    def _telling(self, handle: Callable[..., Awaitable[Response]], *arguments: object) -> Handler:
        """A handler whose errors are pages, too."""

        async def answer(request: Request) -> Response:
            try:
                return await handle(request, *arguments)
            except HeadgateError as error:
                status = 404 if isinstance(error, NotFoundError) else _STATUS.get(error.kind, 502)
                session = self._session(request)
                return self._html("failure.html", session, status=status, title="Not done", error=error.as_dict())

        return answer

    def _session(self, request: Request) -> Session:
        return self._sessions.find(request.cookies.get(self._cookie, "")) or self._sessions.nobody

    # -- pages

    def _view(self, request: Request, page: Page) -> View:
        refuse_unknown(request.query_params, tuple(page.arguments), where="the query")
        given = {**request.path_params, **{name: value for name, value in request.query_params.items() if value}}
        return View(page, tuple(sorted(given.items())), self._session(request).may_act)

    async def _page(self, request: Request, page: Page) -> Response:
        view, session = self._view(request, page), self._session(request)
        await in_thread(self._renderer.check, view)
        parts = await in_thread(self._renderer.parts, view)
        content = "\n".join(parts.values()).replace(self._renderer.mark, session.form_secret)
        arguments = dict(view.arguments)
        choices = await in_thread(self._choices, page)
        return self._html(
            "page.html", session, title=arguments.get("name", page.title), page=page.name, content=content,
            live_url=view.live_url, form=page.form, arguments=arguments, choices=choices, here=view.url,
        )  # fmt: skip

    def _choices(self, page: Page) -> list[tuple[str, str, str]]:
        """The destinations that the event viewer may show, each with its kind and why it cannot be shown."""
        if page.name != "events":
            return []
        kinds = self._service().control().kinds()["destinations"]
        return [(name, kind, unreadable(kind)) for name, kind in kinds.items()]

    async def _follow(self, request: Request, page: Page) -> Response:
        view = self._view(request, page)
        await in_thread(self._renderer.check, view)
        try:
            session = self._session(request)
            events = self._live.follow(view, session, lambda: self._session(request) is session)
        except TooManyError:
            return problem(503, "too many people look at once", "close a page, or load it again now and then")
        return StreamingResponse(events, media_type="text/event-stream", headers=_STREAM_HEADERS)

    async def _letters(self, request: Request) -> Response:
        name, query = request.path_params["name"], request.query_params
        refuse_unknown(query, ("reason", "topic", "after"), where="the query")
        store = self._service().control().dead_letters(name)
        reason, topic, after = query.get("reason") or None, query.get("topic") or None, number(query.get("after"), 0)
        listing = partial(store.list, reason=reason, topic=topic, after=after, limit=_MOST_LETTERS + 1)
        letters = await in_thread(listing)
        counts = await in_thread(store.counts)
        session = self._session(request)
        return self._html(
            "letter_list.html", session, title=f"Dead letters of {name}", page="letters", name=name, counts=counts,
            letters=[each.as_dict() for each in letters[:_MOST_LETTERS]], reason=reason, topic=topic, after=after,
            has_more=len(letters) > _MOST_LETTERS,
        )  # fmt: skip

    async def _letter(self, request: Request) -> Response:
        name, wanted = request.path_params["name"], number(request.path_params["number"], 0)
        found = await in_thread(self._service().control().dead_letters(name).get, wanted)
        if found is None:
            raise NotFoundError(f"there is no dead letter {wanted} of {name}", remedy="it may have been sent on")
        session = self._session(request)
        return self._html(
            "letter.html", session, title=f"Dead letter {wanted} of {name}", page="letters", name=name,
            letter=found.as_dict(), payload=found.payload, key=found.partition_key,
        )  # fmt: skip

    async def _explain(self, request: Request) -> Response:
        session = self._session(request)
        reports = await in_thread(self._service().reports)
        routed = [report.pipeline for report in reports if report.routing]
        form = dict(request.query_params)
        explained, failure = None, None
        if request.method == "POST":
            form = await read_form(request, "pipeline", "rows")
            checked_form(form, session, acts=False)
            try:
                work = partial(explain, self._service().control(), form.get("pipeline", ""), form.get("rows", ""))
                explained = await in_thread(work)
            except HeadgateError as error:
                failure = error.as_dict()
        return self._html(
            "explain.html", session, title="Explain", page="explain", pipelines=routed, explained=explained,
            failure=failure, chosen=form.get("pipeline", ""), rows=form.get("rows", ""),
        )  # fmt: skip

    # -- actions

    async def _act(self, request: Request) -> Response:
        session, name = self._session(request), request.path_params["name"]
        wanted = request.path_params["action"]
        if wanted not in ACTIONS:
            raise NotFoundError(f"there is no action {wanted[:40]}", remedy="load the page again")
        action, fields = ACTIONS[wanted]
        return await self._done(request, session, fields, lambda form: action(self._service().control(), name, form))

    async def _produce(self, request: Request) -> Response:
        work = partial(produce, self._service().stores())
        return await self._done(request, self._session(request), PRODUCED, work)

    async def _done(
        self, request: Request, session: Session, fields: Sequence[str], work: Callable[[dict[str, str]], str]
    ) -> Response:
        """Do what a form asks for, and go back to the page that it was on, which tells what came of it."""
        form = await read_form(request, *fields, "back")
        checked_form(form, session, acts=True)
        try:
            session.told = "good", await in_thread(work, form)
        except HeadgateError as error:
            session.told = "bad", f"{error} Try: {error.remedy}" if error.remedy else str(error)
        return RedirectResponse(_back(form.get("back", "/")), 303, headers=_HEADERS)

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return self._login_page(_back(request.query_params.get("back", "/")))
        if wait_s := self._attempts.wait_s(address_of(request)):
            return too_many(wait_s)
        form = await read_form(request, "token", "back", most_bytes=_MOST_LOGIN_BYTES)
        back = _back(form.get("back", "/"))
        if self._token is not None and not hmac.compare_digest(form.get("token", "").encode(), self._token.encode()):
            self._attempts.fail(address_of(request))
            return self._login_page(back, status=401)
        answer = RedirectResponse(back, 303, headers=_HEADERS)
        if self._token is not None:
            answer.set_cookie(
                self._cookie, self._sessions.begin(), max_age=LIFETIME_S, httponly=True, samesite="strict",
                secure=request.url.scheme == "https",
            )  # fmt: skip
        return answer

    def _login_page(self, back: str, status: int = 200) -> Response:
        text = self._renderer.page("login.html", wrong=status != 200, back=back, version=__version__)
        return HTMLResponse(text, status_code=status, headers=_HEADERS)

    async def _logout(self, request: Request) -> Response:
        checked_form(await read_form(request), self._session(request), acts=False)
        self._sessions.end(request.cookies.get(self._cookie, ""))
        answer = RedirectResponse("/login", 303, headers=_HEADERS)
        answer.delete_cookie(self._cookie, httponly=True, samesite="strict")
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            return Response(status_code=404, headers=_HEADERS)
        content = resources.files(__package__).joinpath("static", name).read_bytes()
        return Response(content, media_type=_TYPES[name], headers=_HEADERS)

    def _html(self, template: str, session: Session, *, status: int = 200, **values: Any) -> Response:
        shared = {"page": "", "live_url": ""} | values
        text = self._renderer.page(
            template, **shared, told=session.take_told(), may_act=session.may_act, form_secret=session.form_secret,
            has_login=self._token is not None, version=__version__,
        )  # fmt: skip
        return HTMLResponse(text, status_code=status, headers=_HEADERS)


def _back(path: str) -> str:
    """A page of ours to go back to; never another site, which `//host` would be."""
    is_ours = path == "/" or path.startswith("/dashboard/")
    return path if is_ours and path.isprintable() and "\\" not in path else "/"
