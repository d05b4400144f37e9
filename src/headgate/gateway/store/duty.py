"""Work that one gateway does for all: whoever gets the lock first, until it stops or loses its connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import psycopg

from headgate.gateway.health import Health
from headgate.postgres import PromptConnection, open_async

__all__ = ["Duty"]

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_CONNECT_TIMEOUT_S = 5
# The server process of a line that was cut has not heard of it, and would keep the lock.
_END_SQL = b"select pg_terminate_backend(pid) from pg_stat_activity where pid = %s and application_name = %s"


class Duty:
    """`work` is called again and again on a connection that holds the lock, with a pause in between.

    It may take as long as it likes, but no statement of it longer than `patience_s`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        interval_s: float,
        work: Callable[[psycopg.AsyncConnection], Awaitable[None]],
        health: Health,
        patience_s: float,
    ) -> None:
        self.name = name
        self._url = url
        self._interval_s = interval_s
        self._work = work
        self._health = health
        self._patience_s = patience_s
        self._application = f"headgate gateway {name}"
        self._last_pid: int | None = None  # of the connection before

    async def run(self) -> None:
        while True:
            try:
                async with await open_async(
                    PromptConnection,
                    self._url,
                    self._application,
                    timeout_s=_CONNECT_TIMEOUT_S,
                    application_name=self._application,
                ) as connection:
                    connection.patience_s = self._patience_s
                    await self._serve(connection)
            except psycopg.OperationalError as error:
                logger.warning("%s is interrupted: %s", self.name, error)
                self._health.failed(self.name, error)
            await asyncio.sleep(_RETRY_S)

    async def _serve(self, connection: psycopg.AsyncConnection) -> None:
        if self._last_pid is not None:
            await connection.execute(_END_SQL, [self._last_pid, self._application])
        self._last_pid = connection.info.backend_pid
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
