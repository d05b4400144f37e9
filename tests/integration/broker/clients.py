"""Clients that run for the length of a test, and handlers that can be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from headgate.broker import BrokerClient, Event, Subscription

__all__ = ["ALL", "Seen", "connect", "eventually", "expect", "running", "until"]

ALL = Subscription("e.topic is not null")


@asynccontextmanager
async def running(client: BrokerClient) -> AsyncIterator[BrokerClient]:
    async with client:
        task = asyncio.create_task(client.run())
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Seen:
    """A handler that keeps what it gets, fails as told, and can be awaited."""

    def __init__(self, fails: Callable[[Event], bool] = lambda event: False) -> None:
        self.events: list[Event] = []
        self._fails = fails
        self._changed = asyncio.Condition()

    async def __call__(self, events: Sequence[Event]) -> None:
        async with self._changed:
            self.events += events
            self._changed.notify_all()
        if any(self._fails(event) for event in events):
            raise ValueError("it does not like that")

    async def wait_for(self, count: int) -> list[Any]:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return [event.payload for event in self.events]


async def until(db: psycopg.AsyncConnection[Any], query: str) -> tuple[Any, ...]:
    """The first row of a query that has one."""
    async with asyncio.timeout(60):
        while not (row := await (await db.execute(query.encode())).fetchone()):
            await db.execute("select pg_sleep(0.01)")
    return tuple(row)


async def connect(database: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(database, autocommit=True, options="-c search_path=headgate")


async def eventually(holds: Callable[[], bool]) -> None:
    """For what tells nobody when it changes."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def expect(found: Callable[[], Any], wanted: Any) -> None:
    """Until it is what is wanted; what it was instead, otherwise."""
    try:
        await eventually(lambda: bool(found() == wanted))
    except TimeoutError:
        assert found() == wanted
