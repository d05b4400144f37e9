"""Doors that are open for a test, listeners, and somebody who takes webhooks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import httpx
import psycopg

from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.server import BrokerServer

TIMEOUT_S = 20.0


@dataclass
class Heard:
    """One event of a stream. `topic` is empty for what is no event: an id alone, or a comment."""

    id: str = ""
    topic: str = ""
    data: str = ""
    retry: str = ""

    @property
    def payload(self) -> Any:
        return json.loads(self.data)


class Ear:
    """Reads a stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = _lines(response)
        self.last_id = ""

    async def block(self) -> Heard | None:
        """Up to the next empty line; None at the end."""
        heard = Heard()
        async with asyncio.timeout(TIMEOUT_S):
            async for line in self._lines:
                if not line:
                    self.last_id = heard.id or self.last_id
                    return heard
                name, _, value = line.partition(": ")
                if name:
                    setattr(heard, {"event": "topic"}.get(name, name), value)
        return None

    async def events(self, count: int) -> list[Heard]:
        found: list[Heard] = []
        while len(found) < count:
            heard = await self.block()
            assert heard is not None, f"the stream ended after {found}"
            if heard.topic:
                found.append(heard)
        return found


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """As the standard of event streams cuts them: httpx would also cut at line breaks of other scripts."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():  # noqa: ASYNC110  it is in another process, or in the database
            await asyncio.sleep(0.01)


async def until_nobody_listens(doors: BrokerServer) -> None:
    async def nobody() -> bool:
        return not doors.metrics()["connections"]

    await until(nobody)


@asynccontextmanager
async def listening(doors: BrokerServer, *topics: str, after: str = "", **headers: str) -> AsyncIterator[Ear]:
    """A listener that has been told where it is: what is published from now on will be heard."""
    if after:
        headers["last-event-id"] = after
    async with httpx.AsyncClient(base_url=doors.url, timeout=TIMEOUT_S) as client:
        parameters = httpx.QueryParams([("topic", topic) for topic in topics])
        async with client.stream("GET", "/events", params=parameters, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            ear = Ear(response)
            first = await ear.block()
            assert first is not None
            assert first.retry
            yield ear


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[tuple[BrokerServer, psycopg.AsyncConnection[Any]]]:
    """Doors, and a session beside them."""
    connecting = psycopg.AsyncConnection.connect(url, autocommit=True, options="-c search_path=headgate")
    async with (
        await connecting as db,
        BrokerServer.open(BrokerServerOptions(postgres_url=url, port=0, **options)) as doors,
    ):
        yield doors, db


async def publish(db: psycopg.AsyncConnection[Any], topic: str, *payloads: Any) -> None:
    for payload in payloads:
        await db.execute("select publish(%s, %s::jsonb)", [topic, json.dumps(payload)])


async def fetch(db: psycopg.AsyncConnection[Any], statement: str, *values: Any) -> list[Any]:
    return await (await db.execute(statement.encode(), values)).fetchall()


@dataclass(frozen=True)
class Taken:
    """A request that came."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def items(self) -> list[dict[str, Any]]:
        return list(json.loads(self.body)["items"])

    @property
    def key(self) -> str:
        return self.headers["webhook-id"]

    @property
    def payloads(self) -> list[Any]:
        return [item["payload"] for item in self.items]


@dataclass
class Receiver:
    """Answers each request with what `answer` says."""

    url: str = ""
    taken: Queue[Taken] = field(default_factory=Queue)
    answer: Callable[[Taken], int] = lambda taken: 204
    headers: Callable[[int], Mapping[str, str]] = lambda status: {}

    async def next(self) -> Taken:
        return await asyncio.to_thread(self.taken.get, timeout=TIMEOUT_S)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken = Taken({name.lower(): value for name, value in self.headers.items()}, body)
            receiver.taken.put(taken)
            status = receiver.answer(taken)
            try:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", receiver.url)
                for name, value in receiver.headers(status).items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                self.close_connection = True  # whoever asked is gone

        def log_message(self, *_: Any) -> None:
            """Not to standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?key=t0ken"
    yield receiver
    server.shutdown()
    server.server_close()
    thread.join()
