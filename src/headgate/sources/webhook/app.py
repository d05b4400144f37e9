"""One HTTP request, from its headers to the answer. A plain ASGI application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from headgate.model import HeadgateError, Position
from headgate.runtime.access import is_foreign_host
from headgate.sources.webhook.auth import client_of, fingerprint, idempotency_key, public_headers
from headgate.sources.webhook.bodies import BadBodyError, split_body
from headgate.sources.webhook.intake import Intake
from headgate.sources.webhook.options import ServerOptions
from headgate.spool.frames import Request
from headgate.spool.spool import Receipt

__all__ = ["MOST_HEADER_BYTES", "Answer", "Counts", "WebhookApp"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_HEADER_BYTES = 32 * 1024  # they are kept in rows
_LATER_S = "2"  # Retry-After
_MOST_DRAINED = 16 << 20


@dataclass(slots=True)
class Counts:
    """What the server did. Written by its event loop alone."""

    requests: int = 0
    rows: int = 0
    duplicates: int = 0
    refused: int = 0
    unavailable: int = 0


class Answer(Exception):  # noqa: N818 - the way out of a request that is not accepted
    """An HTTP status that ends the request."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.body: dict[str, Any] = {"error": error}
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class WebhookApp:
    """Accepts requests, and answers each when it is durable."""

    def __init__(self, options: ServerOptions, intake: Intake, origin: str) -> None:
        self._options = options
        self._intake = intake
        self._origin = origin
        self._in_flight = 0
        self.counts = Counts()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.counts.requests += 1
        body = _Body(receive, self._options.max_body)
        try:
            receipt = await self._accept(scope, body)
        except Answer as answer:
            self._count(answer)
            await _drain(scope, body, self._options.request_timeout_s)
            # Who was refused before the end of the body must not go on sending it.
            close = {} if body.complete else {"connection": "close"}
            await _answer(send, answer.status, answer.body, answer.headers | close)
            return
        self.counts.duplicates += receipt.duplicate
        self.counts.rows += 0 if receipt.duplicate else receipt.rows
        ids = [f"{self._origin}-{Position(receipt.first_row + n)}" for n in range(receipt.rows)]
        said = {"ids": ids, "duplicate": True} if receipt.duplicate else {"ids": ids}
        await _answer(send, 200 if receipt.duplicate else 202, said, {})

    async def _accept(self, scope: Mapping[str, Any], body: _Body) -> Receipt:
        options = self._options
        path: str = scope["path"]
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            raise Answer(431, "the headers are too long")
        headers = _texts(scope["headers"])
        self._check_target(scope["method"], path, headers)
        if self._in_flight >= options.max_requests:
            raise Answer(503, "too many requests at a time", retry_after=_LATER_S)
        self._in_flight += 1
        try:
            client = self._client(headers)
            data = await self._read(headers, body)
            request = self._request(path, headers, client, data)
            if not request.bodies:
                return Receipt(0, 0)
            return await asyncio.wrap_future(self._intake.submit(request))
        except HeadgateError as error:
            raise Answer(503, error.message, retry_after=_LATER_S) from None
        finally:
            self._in_flight -= 1

    def _check_target(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        base = self._options.path.rstrip("/")
        if path != self._options.path and not path.startswith(f"{base}/"):
            raise Answer(404, "not found")
        if method != "POST":
            raise Answer(405, "use POST", allow="POST")
        if "origin" in headers and not (self._options.keys or self._options.signing):
            # A page in a browser on this machine must not be able to send rows behind its user's back.
            raise Answer(403, "requests from web pages are refused")
        if is_foreign_host(headers.get("host")) and not (self._options.keys or self._options.signing):
            raise Answer(403, "without keys this server answers to addresses only, not to names")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Answer(415, "compressed bodies are not supported")

    def _client(self, headers: Mapping[str, str]) -> str | None:
        if not self._options.keys:
            return None
        client = client_of(headers, self._options.keys)
        if client is None:
            raise Answer(401, "unauthorized", www_authenticate="Bearer")
        return client

    async def _read(self, headers: Mapping[str, str], body: _Body) -> bytes:
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > self._options.max_body:
            raise Answer(413, f"a body may have {self._options.max_body} bytes")
        try:
            async with asyncio.timeout(self._options.request_timeout_s):
                return await body.read()
        except TimeoutError:
            raise Answer(408, "the body took too long") from None

    def _request(self, path: str, headers: Mapping[str, str], client: str | None, data: bytes) -> Request:
        signing = self._options.signing
        now_ns = time.time_ns()
        if signing and not signing.verify(headers, data, now_s=now_ns / 1e9):
            raise Answer(401, "unauthorized")
        content_type = headers.get("content-type")
        text = self._options.body == "text"
        try:
            bodies = split_body(content_type or "", data, text=text, max_events=self._options.max_events)
        except BadBodyError as error:
            raise Answer(400, str(error)) from None
        key = idempotency_key(headers, signed=signing is not None and signing.signs_id)
        return Request(
            received_us=now_ns // 1000,
            key=fingerprint(key, client, path),
            client=client,
            path=path,
            content_type=content_type,
            headers=public_headers(headers, signing.header_name if signing else None),
            bodies=bodies,
        )

    def _count(self, answer: Answer) -> None:
        if answer.status == 503:
            self.counts.unavailable += 1
        else:
            self.counts.refused += 1


class _Body:
    """A body that arrives in parts, and is never longer in memory than allowed."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self.complete = False

    async def read(self) -> bytes:
        data = bytearray()
        while not self.complete:
            data += await self._next()
            if len(data) > self._limit:
                raise Answer(413, f"a body may have {self._limit} bytes")
        return bytes(data)

    async def drain(self, most: int) -> None:
        while not self.complete and most > 0:
            most -= len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.complete = True
            raise Answer(400, "the client went away")
        self.complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part


async def _drain(scope: Mapping[str, Any], body: _Body, timeout_s: float) -> None:
    """Take in a rest of moderate size: a client that is cut off while it sends would not see the answer."""
    if body.complete or any(name == b"expect" for name, _ in scope["headers"]):
        return  # who asks before sending has not sent anything
    try:
        async with asyncio.timeout(min(timeout_s, 1.0)):
            await body.drain(_MOST_DRAINED)
    except (TimeoutError, Answer):
        return


async def _answer(send: Send, status: int, body: dict[str, Any], headers: Mapping[str, str]) -> None:
    data = json.dumps(body).encode()
    lines = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    lines += [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": data})


def _texts(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names are in lower case already. The last of several of a name wins, as with most servers."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
