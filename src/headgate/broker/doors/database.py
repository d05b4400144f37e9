"""The broker's database, as doors use it: short statements, notifications, and what keeps events moving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

__all__ = ["Database", "persist"]

_log = logging.getLogger(__name__)

_CONNECTIONS = 8
_POLL_S = 0.02  # between polls while there is something to do; idle, it gets longer
_IDLE_POLL_S = 0.25
_MAINTENANCE_S = 60.0
_RECONNECT_S = 1.0


class Database:
    """A pool of connections to one broker. `wake` tells who waits for a group that there may be something for it."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._url = url
        self._settings: dict[str, Any] = {
            "autocommit": True,
            "options": f"-c search_path={schema},pg_temp",
            "application_name": "headgate broker",
        }
        self._pool = AsyncConnectionPool(url, min_size=1, max_size=_CONNECTIONS, open=False, kwargs=self._settings)
        self._waiting: dict[asyncio.Event, int | None] = {}  # None: for changes of webhooks

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        async with self._pool.connection() as connection:
            return await (await connection.execute(statement.encode(), values)).fetchall()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with self._pool.connection() as connection, connection.transaction():
            yield connection

    def wake(self, event: asyncio.Event, group_number: int | None = None) -> None:
        """Set this event when the group may have something; without a group, when webhooks have changed."""
        self._waiting[event] = group_number

    def forget(self, event: asyncio.Event) -> None:
        self._waiting.pop(event, None)

    async def listen(self) -> None:
        """Hear of deliveries, for ever. A hint, no more: what is missed is found by looking."""
        async with await psycopg.AsyncConnection.connect(self._url, **self._settings) as connection:
            events, webhooks = f"{self.schema}_events", f"{self.schema}_webhooks"
            for channel in (events, webhooks):
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            self._tell(lambda number: True)  # something may have come before this
            async for notification in connection.notifies():
                if notification.channel == webhooks:
                    self._tell(lambda number: number is None)
                elif not notification.payload:
                    self._tell(lambda number: number is not None)
                else:
                    named = {int(number) for number in notification.payload.split(",") if number.isdigit()}
                    self._tell(named.__contains__)

    def _tell(self, is_meant: Callable[[int | None], bool]) -> None:
        for event, number in self._waiting.items():
            if is_meant(number):
                event.set()

    async def dispatch(self) -> None:
        """Match events with subscriptions, for ever. Others may do the same: one at a time works."""
        pause = _POLL_S
        while True:
            [(dispatched, more)] = await self.fetch("select dispatched, more from poll_for_events_v1()")
            pause = _POLL_S if dispatched else min(_IDLE_POLL_S, pause * 1.5)
            if not more:
                await asyncio.sleep(pause)

    async def maintain(self) -> None:
        while True:
            await self.fetch("select 1 from maintain_v1()")
            await asyncio.sleep(_MAINTENANCE_S)


async def persist(work: Callable[[], Awaitable[None]]) -> None:
    """Do something until it is done, through failures of the database."""
    while True:
        try:
            return await work()
        except psycopg.Error as error:
            _log.warning("the database failed: %s", type(error).__name__, extra={"sqlstate": error.sqlstate})
            await asyncio.sleep(_RECONNECT_S)
