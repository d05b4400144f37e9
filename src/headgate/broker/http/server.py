"""HTTP server of a broker: SSE and webhook delivery, with dispatch and maintenance, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headgate.broker.database import persist
from headgate.broker.duties import Duties, new_client_id
from headgate.broker.http.database import ServerDatabase
from headgate.broker.http.guard import TicketDoor, guarded
from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.sse import EventDoor
from headgate.broker.http.webhooks import WebhookWorker
from headgate.broker.install import install
from headgate.model import ConnectError
from headgate.postgres import open_connection
from headgate.runtime.ending import end, stopped_by_signals
from headgate.runtime.listening import listen

__all__ = ["BrokerServer", "serve"]

_STOP_S = 8  # more than a webhook may take
_LOOK_S = 5.0


class _Server(uvicorn.Server):
    """Signals are ours: streams must be ended before the server waits for them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BrokerServer:
    """HTTP server for SSE and webhook delivery; dispatches and maintains beside it.

    `async with BrokerServer.open(options) as server: await server.stopped(...)`
    """

    def __init__(self, options: BrokerServerOptions) -> None:
        self.options = options
        self._database = ServerDatabase(options.postgres_url, options.schema, options.connecting)
        self._duties = Duties(self._database, new_client_id(), _nothing)
        self._events = EventDoor(self._database, options.limits)
        self._webhooks = WebhookWorker(self._database, options.allow_private)
        self._status: dict[str, Any] = {}
        self._socket = listen(options.host, options.port, backlog=128, where="broker.port")
        config = uvicorn.Config(
            self._application(),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            # A listener that is refused is told so; this is for connections that never ask.
            limit_concurrency=options.limits.connections + 100,
        )
        self._server = _Server(config)

    @classmethod
    @asynccontextmanager
    async def open(cls, options: BrokerServerOptions) -> AsyncIterator[Self]:
        """Install what the schema has not had, and serve until the block ends; then finish what is under way."""
        await asyncio.to_thread(_prepare, options)
        doors = cls(options)
        await doors._database.open()
        database, duties = doors._database, doors._duties
        work = (*duties.loops, database.hear_of_groups, database.hear_of_webhooks, doors._look)
        loops = [asyncio.create_task(persist(each, whatever=True)) for each in work]
        webhooks = [asyncio.create_task(doors._webhooks.run())] if options.webhooks else []
        server = asyncio.create_task(doors._server.serve(sockets=[doors._socket]))
        try:
            yield doors
        finally:
            doors._events.close()
            doors._webhooks.stop()
            doors._server.should_exit = True
            await asyncio.wait([server, *webhooks], timeout=_STOP_S)
            await end(server, *webhooks, *loops)
            doors._socket.close()
            await _soon(duties.leave([]))
            await database.close()

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def metrics(self) -> dict[str, Any]:
        counted = self._webhooks.counters
        return {
            "connections": self._events.connections,
            "streams": self._events.rooms,
            "webhooks": self._webhooks.webhooks,
            "webhook_events_delivered_total": counted.delivered,
            "webhook_events_retried_total": counted.retried,
            "webhook_events_buried_total": counted.buried,
            "dispatch_timings": self._duties.timings.as_dict(),
            **self._status,
        }

    async def _look(self) -> None:
        """What there is in the broker, for those who watch it."""
        while True:
            found = await self._database.fetch("select to_jsonb(s) from {schema}.broker_status_v1() as s")
            self._status = found[0][0]
            await asyncio.sleep(_LOOK_S)

    def _application(self) -> ASGIApp:
        routes = [Route("/health", self._health)]
        if self.options.sse:
            tickets = TicketDoor(self.options.token, self.options.limits.topics)
            routes.append(Route("/events", self._events, methods=["GET"]))
            routes.append(Route("/tickets", tickets.answer, methods=["POST"]))
        return guarded(Starlette(routes=routes), self.options.token, self.options.origins)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})


async def _nothing() -> None:
    """Doors hold no subscriptions as clients do."""


async def _soon(work: Awaitable[None]) -> None:
    """If the database answers; those who come after us find out by themselves otherwise."""
    try:
        async with asyncio.timeout(1):
            await work
    except (TimeoutError, psycopg.Error):
        pass


def _prepare(options: BrokerServerOptions) -> None:
    try:
        with open_connection(options.postgres_url, "headgate broker") as connection:
            install(connection, options.schema)
    except psycopg.OperationalError as error:
        raise ConnectError(
            f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
        ) from None


def serve(
    options: BrokerServerOptions,
    *,
    ready: Callable[[BrokerServer], None],
    until: Callable[[asyncio.Event], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends it at once. `until` may set the event, too."""
    asyncio.run(_serve(options, ready, until))


async def _serve(
    options: BrokerServerOptions, ready: Callable[[BrokerServer], None], until: Callable[[asyncio.Event], None] | None
) -> None:
    stop = stopped_by_signals()
    if until:
        until(stop)
    async with BrokerServer.open(options) as doors:
        ready(doors)
        await stop.wait()
