"""The connections of a client: a pool, one that listens, and patience with a server that goes away and comes back.

A pool may lead to a pooler such as PgBouncer, where the next statement may find another session, and what somebody else
has left in it: statements name the schema, and neither settings, temporary tables nor session locks are used. What
needs a session of its own, listening, may be given a direct address, or be left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads
from psycopg_pool import PoolClosed

from headgate.broker.messages import Subscription
from headgate.broker.payloads import loads
from headgate.broker.transactions import check_schema, subscribe
from headgate.model import ConnectError, StateError
from headgate.postgres import QuietConnection, open_async, within
from headgate.postgres.pool import make_pool

__all__ = ["LOOK_DEAF_S", "Connecting", "Database", "is_passing", "persist", "wait"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NAME = "headgate broker"

OPEN_S = 30.0
RECONNECT_S = (0.05, 2.0)  # the first pause, and the longest
LOOK_DEAF_S = 0.5  # between looks while nobody tells us
PROBE_S = 5.0  # for a notification to arrive
DEAF_S = 60.0  # until it is tried again
READ_ONLY = "25006"  # a server that is not, or no longer, the primary


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """How to reach the database. `repr` shows no addresses: they may have passwords in them."""

    pool_size: int = 8
    listen: bool = True  # False: look for events again and again, because notifications do not come through
    listen_url: str | None = field(default=None, repr=False)  # a direct address, if the other one is a pooler's
    prepare_threshold: int | None = 5  # calls before a statement is prepared; None: never, as some poolers need it


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    set_json_loads(loads, connection)


class Database:
    """One database, seen from the broker's schema."""

    def __init__(self, url: str, schema: str, connecting: Connecting) -> None:
        self.schema = check_schema(schema)
        self._listen_url, self._listens = connecting.listen_url or url, connecting.listen
        self._prepare_threshold = connecting.prepare_threshold
        self.pool = make_pool(
            psycopg.AsyncConnection,
            url,
            _NAME,
            size=connecting.pool_size,
            configure=_configure,
            prepare_threshold=self._prepare_threshold,
        )
        self._texts: dict[str, bytes] = {}
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
        async def work(connection: psycopg.AsyncConnection[Any]) -> list[Any]:
            return await (await connection.execute(self.text(statement), values)).fetchall()

        return await self.run(work)

    async def fetch_within(self, seconds: float, statement: str, *values: Any) -> list[Any]:
        """Run a statement and return its rows; cancel it on the server after `seconds`."""

        async def work(connection: psycopg.AsyncConnection[Any]) -> list[Any]:
            async def ask() -> list[Any]:
                return await (await connection.execute(self.text(statement), values)).fetchall()

            try:
                return await within(seconds, connection, ask())
            except TimeoutError:
                raise psycopg.OperationalError("the server does not answer") from None

        return await self.run(work)

    async def run(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Use a connection. A pooler may have prepared statements in another session than we believe: not again."""
        try:
            return await self._run(work)
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement):
            if self._prepare_threshold is None:
                raise
            logger.warning("prepared statements get lost, as behind a pooler: none are made from now on")
            self._prepare_threshold = None
            return await self._run(work)

    async def _run(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        async with self.pool.connection() as connection:
            connection.prepare_threshold = self._prepare_threshold
            return await work(connection)

    def text(self, statement: str) -> bytes:
        """A statement with the name of the schema in it."""
        if statement not in self._texts:
            self._texts[statement] = statement.replace("{schema}", f'"{self.schema}"').encode()
        return self._texts[statement]

    async def subscribe(self, group: str, subscription: Subscription, client_id: str) -> int:
        return await self.run(
            lambda connection: subscribe(connection, group, subscription, client=client_id, schema=self.schema)
        )

    async def group_number(self, group: str) -> str:
        """What notifications call a group."""
        return str((await self.fetch("select gno from {schema}.subscription_groups where id = %s", group))[0][0])

    async def notify(self, channel: str, payload: str) -> None:
        await self.fetch("select pg_notify(%s, %s)::text", f"{self.schema}_{channel}", payload)

    async def listen(self, told: Callable[[str], None], channel: str, hearing: Callable[[bool], None]) -> None:
        """Pass on what is told on a channel. A hint, no more: what is missed here is found by looking.

        `hearing` is called with whether it is worth waiting to be told.
        """
        if not self._listens:
            await asyncio.Event().wait()
        while True:
            try:
                await self._listen(told, channel, hearing)
            finally:
                hearing(False)
            logger.warning(
                "notifications do not come through, as behind a pooler: events are looked for every %s s;"
                " give a direct address as listen_url, or say listen=False",
                LOOK_DEAF_S,
            )
            await asyncio.sleep(DEAF_S)

    async def hear_of_events(self, told: Callable[[str], None]) -> None:
        """The dispatcher tells which groups have something to read; nothing means all."""
        await self.listen(told, "events", self._hear)

    def _hear(self, hearing: bool) -> None:
        self.listening = hearing

    async def _listen(self, told: Callable[[str], None], channel: str, hearing: Callable[[bool], None]) -> None:
        """Returns if this session hears nothing."""
        async with await open_async(
            QuietConnection, self._listen_url, _NAME, prepare_threshold=self._prepare_threshold
        ) as connection:
            probe = f"{channel}_{uuid4().hex[:8]}"
            for name in (channel, probe):
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"{self.schema}_{name}")))
            await self.notify(probe, "")
            if not await self._hears(connection, probe):
                return
            await connection.execute(sql.SQL("unlisten {}").format(sql.Identifier(f"{self.schema}_{probe}")))
            hearing(True)
            told("")  # for all that was told while nobody listened
            async for note in connection.notifies():
                told(note.payload)

    async def _hears(self, connection: psycopg.AsyncConnection[Any], probe: str) -> bool:
        """Whether what another session tells arrives here."""
        deadline = asyncio.get_running_loop().time() + PROBE_S
        while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            async for note in connection.notifies(timeout=left_s, stop_after=1):
                if note.channel == f"{self.schema}_{probe}":
                    return True
        return False


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
