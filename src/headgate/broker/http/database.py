"""The broker's database, as doors use it: it also knows who waits for which group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from headgate.broker.database import Connecting, Database

__all__ = ["ServerDatabase"]


class ServerDatabase(Database):
    """`wake` tells who waits for a group that there may be something for it."""

    def __init__(self, url: str, schema: str, connecting: Connecting | None = None) -> None:
        super().__init__(url, schema, connecting or Connecting())
        self._waiting: dict[asyncio.Event, int | None] = {}  # None: for changes of webhooks

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with self.pool.connection() as connection, connection.transaction():
            yield connection

    def wake(self, event: asyncio.Event, group_number: int | None = None) -> None:
        """Set this event when the group may have something; without a group, when webhooks have changed."""
        self._waiting[event] = group_number

    def forget(self, event: asyncio.Event) -> None:
        self._waiting.pop(event, None)

    async def hear_of_groups(self) -> None:
        await self.hear_of_events(self._told_of_events)

    async def hear_of_webhooks(self) -> None:
        await self.listen(lambda _: self._tell(lambda number: number is None), "webhooks", lambda _: None)

    def _told_of_events(self, groups: str) -> None:
        """The dispatcher names groups; nothing means all."""
        named = {int(number) for number in groups.split(",") if number.isdigit()}
        self._tell(lambda number: number is not None and (not groups or number in named))

    def _tell(self, is_meant: Callable[[int | None], bool]) -> None:
        for event, number in self._waiting.items():
            if is_meant(number):
                event.set()
