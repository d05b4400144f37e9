"""The connections of a client: a pool, one that listens, and patience with a server that goes away and comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, PoolClosed

from headgate.broker.messages import Subscription
from headgate.broker.transactions import subscribe
from headgate.model import ConnectError, StateError

__all__ = ["Database", "is_passing", "persist", "wait"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_S = 30.0
RECONNECT_S = (0.05, 2.0)  # the first pause, and the longest
READ_ONLY = "25006"  # a server that is not, or no longer, the primary


class Database:
    """One database, seen from the broker's schema."""

    def __init__(self, url: str, schema: str, pool_size: int) -> None:
        self._url, self.schema = url, schema
        self._options = f"-c search_path={schema},pg_temp"
        self.pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            open=False,
            kwargs={"autocommit": True, "options": self._options, "application_name": "headgate broker"},
        )
        self.listening = False

    async def open(self) -> None:
        try:
            await self.pool.open(wait=True, timeout=OPEN_S)
        except psycopg.OperationalError as error:
            await self.pool.close()
            raise ConnectError(
                f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
            ) from None
        if (await self.fetch("select to_regclass(%s) is null", f"{self.schema}.migrations"))[0][0]:
            await self.pool.close()
            raise StateError(f"there is no broker in the schema {self.schema}", remedy="headgate broker install")

    async def close(self) -> None:
        await self.pool.close()

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(statement.encode(), values)
            return await cursor.fetchall()

    async def subscribe(self, group: str, subscription: Subscription, client_id: str) -> int:
        async with self.pool.connection() as connection:
            return await subscribe(connection, group, subscription, client=client_id, schema=self.schema)

    async def group_number(self, group: str) -> str:
        """What notifications call a group."""
        return str((await self.fetch("select gno from subscription_groups where id = %s", group))[0][0])

    async def listen(self, told: Callable[[str], None], channel: str = "events") -> None:
        """Pass on what the dispatcher tells. A hint, no more: what is missed here is found by looking."""
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, options=self._options, application_name="headgate broker"
        ) as connection:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"{self.schema}_{channel}")))
            self.listening = True
            told("")  # for all that was told while nobody listened
            try:
                async for note in connection.notifies():
                    told(note.payload)
            finally:
                self.listening = False


def is_passing(error: psycopg.Error) -> bool:
    """Whether a server that comes back, or another one, would do it: the same again makes sense."""
    if isinstance(error, PoolClosed):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or error.sqlstate == READ_ONLY


async def persist(work: Callable[[], Awaitable[T]], *, whatever: bool = False) -> T:
    """Do something until it is done, through failures of the database; with `whatever`, through all of its errors."""
    pause = RECONNECT_S[0]
    while True:
        began = asyncio.get_running_loop().time()
        try:
            return await work()
        except psycopg.Error as error:
            if is_passing(error):
                logger.warning("the database does not answer: %s", type(error).__name__)
            elif whatever:
                logger.error("the database refused: %s (%s)", error.diag.message_primary, error.sqlstate)
            else:
                raise
        # What has worked for a while begins with short pauses again.
        worked = asyncio.get_running_loop().time() - began > RECONNECT_S[1]
        pause = RECONNECT_S[0] if worked else min(RECONNECT_S[1], pause * 2)
        await asyncio.sleep(pause)


async def wait(event: asyncio.Event, timeout_s: float) -> None:
    """Until something happens, or not for so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
