"""Work that one gateway does for all: whoever gets the lock first, until it stops or loses its connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import psycopg

from headgate.gateway.health import Health

__all__ = ["Duty"]

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


class Duty:
    """`work` is called again and again on a connection that holds the lock, with a pause in between."""

    def __init__(
        self,
        name: str,
        url: str,
        interval_s: float,
        work: Callable[[psycopg.AsyncConnection], Awaitable[None]],
        health: Health,
    ) -> None:
        self.name = name
        self._url = url
        self._interval_s = interval_s
        self._work = work
        self._health = health

    async def run(self) -> None:
        name = f"headgate gateway {self.name}"
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, application_name=name
                ) as connection:
                    await self._serve(connection)
            except psycopg.OperationalError as error:
                logger.warning("%s is interrupted: %s", self.name, error)
                self._health.failed(self.name, error)
            await asyncio.sleep(_RETRY_S)

    async def _serve(self, connection: psycopg.AsyncConnection) -> None:
        is_ours = False
        while True:
            is_ours = is_ours or await self._is_ours(connection)
            if is_ours:
                await self._try(connection)
            else:
                self._health.works(self.name)  # another gateway does it, and says how it goes
            await asyncio.sleep(self._interval_s if is_ours else _RETRY_S)

    async def _try(self, connection: psycopg.AsyncConnection) -> None:
        try:
            await self._work(connection)
        except Exception as error:
            if connection.broken:
                raise
            logger.exception("%s failed, and will be tried again: %s", self.name, error)
            self._health.failed(self.name, error)
        else:
            self._health.works(self.name)

    async def _is_ours(self, connection: psycopg.AsyncConnection) -> bool:
        cursor = await connection.execute(b"select pg_try_advisory_lock(hashtext('kafka'), hashtext(%s))", [self.name])
        row = await cursor.fetchone()
        return row is not None and bool(row[0])
