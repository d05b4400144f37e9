"""Access control of the HTTP server: tokens, tickets, and web pages that were named.

A page in a browser is a client that its user did not choose. One of another origin is refused unless it was allowed by
name (CORS), and without a token, only addresses are answered to: a name may be pointed at this machine by anybody.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.broker.http.sse import problem
from headgate.broker.http.tickets import COOKIE, issue, opens
from headgate.runtime.access import has_token, is_foreign_host, is_foreign_origin

__all__ = ["TicketDoor", "guarded"]

_MOST_BODY = 64 * 1024
_MOST_SECONDS = 86_400
_ALLOWED = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, cache-control, content-type, last-event-id",
    "access-control-max-age": "600",
}


def guarded(inner: ASGIApp, token: str | None, origins: Sequence[str] = ()) -> ASGIApp:
    """Nothing stands between streams and the connection, so this looks at the request and at nothing else."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        origin = request.headers.get("origin")
        is_named = origin is not None and origin in origins
        if is_named:
            send = _with_headers(send, _cors(str(origin)))
        if is_named and request.method == "OPTIONS":
            answer: ASGIApp = Response(status_code=204, headers=_ALLOWED)
        else:
            answer = _refusal(request, token, is_named) or inner
        await answer(scope, receive, send)

    return guard


def _refusal(request: Request, token: str | None, is_named: bool) -> Response | None:
    headers = request.headers
    if not is_named and is_foreign_origin(headers.get("origin"), headers.get("host")):
        return problem(403, "requests from other web pages are refused", "allow the page's origin: broker.origins")
    if token is None and is_foreign_host(headers.get("host")):
        fix = "ask for 127.0.0.1 or localhost; behind a proxy with a name, set broker.token"
        return problem(403, "without a token this server answers to addresses only, not to names", fix)
    if token is None or request.url.path == "/health" or has_token(headers.get("authorization"), token):
        return None
    if request.url.path == "/events" and _has_ticket(request, token):
        return None
    return problem(401, "a token is required", "send the header: Authorization: Bearer TOKEN; pages send a ticket")


def _has_ticket(request: Request, token: str) -> bool:
    topics = request.query_params.getlist("topic")
    given = [*request.query_params.getlist("ticket"), request.cookies.get(COOKIE, "")]
    return any(opens(ticket, token, topics, time.time()) for ticket in given if ticket)


def _cors(origin: str) -> dict[str, str]:
    return {"access-control-allow-origin": origin, "access-control-allow-credentials": "true", "vary": "origin"}


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers.items()]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return send_with


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str]
    seconds: int = 60


class TicketDoor:
    """`POST /tickets` with `{"topics": ["a"], "seconds": 60}`, by whoever has the token."""

    def __init__(self, token: str | None, most_topics: int) -> None:
        self._token, self._most_topics = token, most_topics

    async def answer(self, request: Request) -> Response:
        if self._token is None:
            return problem(409, "there is no token, so no ticket is needed", "open the stream without one")
        try:
            wanted = msgspec.json.decode(await _body(request), type=_Wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            return problem(400, f"this is no request for a ticket: {error}", 'send {"topics": ["a"], "seconds": 60}')
        if not 1 <= len(wanted.topics) <= self._most_topics or not 1 <= wanted.seconds <= _MOST_SECONDS:
            fix = f"1 to {self._most_topics} topics, for 1 to {_MOST_SECONDS} seconds"
            return problem(400, "no such ticket is given", fix)
        expires_at_s = int(time.time()) + wanted.seconds
        ticket = issue(self._token, wanted.topics, expires_at_s)
        return JSONResponse({"ticket": ticket, "expires_at": expires_at_s}, headers={"cache-control": "no-store"})


async def _body(request: Request) -> bytes:
    """Not more than it may have, whatever its header says."""
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > _MOST_BODY:
                raise ValueError(f"it has more than {_MOST_BODY} bytes")
    except ClientDisconnect:
        raise ValueError("it did not arrive") from None
    return bytes(data)
