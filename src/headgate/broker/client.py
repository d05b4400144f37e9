"""A client that dispatches, reads ahead and handles: what a program needs that uses the broker.

    async with BrokerClient(url, group="mailer") as broker:
        await broker.register_reliable_handler(Subscription.to_topics("user.created"), greet, name="greet")
        await broker.run()

Any number of clients may run: one at a time dispatches, one reads a group, and the others wait for their turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from headgate.broker.handlers import Batch, Handle, Handler
from headgate.broker.install import DEFAULT_SCHEMA
from headgate.broker.messages import Event, Message, Subscription, publish, send, subscribe
from headgate.model import UsageError

__all__ = ["BrokerClient"]

logger = logging.getLogger(__name__)

LEASE_LOST = "HG001"
READ_AHEAD = 10  # reads that may wait for slow handlers
POLL_S = 0.02  # between polls while there is something to do; idle, it gets longer
IDLE_POLL_S = 0.5
HEARTBEAT_S = 5.0
MAINTENANCE_S = 60.0
RECONNECT_S = 1.0


@dataclass(eq=False)
class _Checkpoint:
    """A read whose batches are being handled. The cursor follows when all before it are done, too."""

    cursor: int
    open: int


class BrokerClient:
    """One group of one program."""

    def __init__(self, url: str, *, group: str, schema: str = DEFAULT_SCHEMA, chunk: int = 1000) -> None:
        self.group, self.schema, self.chunk = group, schema, chunk
        self.id = f"client-{uuid4().hex[:12]}"
        options = f"-c search_path={schema},pg_temp"
        self._url, self._options = url, options
        self._pool = AsyncConnectionPool(
            url, min_size=1, max_size=8, open=False, kwargs={"autocommit": True, "options": options}
        )
        self._handlers: list[Handler] = []
        self._workers: dict[Handler, asyncio.Task[None]] = {}
        self._checkpoints: deque[_Checkpoint] = deque()
        self._cursor: int | None = None  # where to read on; None: where the group is
        self._epoch: int | None = None
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._pool.open(wait=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        await self._pool.close()

    async def publish(self, *messages: Message) -> list[int]:
        """Publish in a transaction of its own; `messages.publish` does it in one of yours."""
        async with self._pool.connection() as connection, connection.transaction():
            return await publish(connection, *messages, schema=self.schema)

    async def send(self, subscription_id: int, *messages: Message) -> list[int]:
        """Publish to one subscription."""
        async with self._pool.connection() as connection, connection.transaction():
            return await send(connection, subscription_id, *messages, schema=self.schema)

    async def subscribe(self, subscription: Subscription) -> int:
        """Create or find a subscription of this group, which does not expire while this client lives."""
        async with self._pool.connection() as connection:
            return await subscribe(connection, self.group, subscription, client=self.id, schema=self.schema)

    async def register_reliable_handler(
        self,
        subscription: Subscription,
        handle: Handle,
        *,
        name: str,
        retries_s: Sequence[float] = (),
        timeout_s: float = 60.0,
    ) -> int:
        """Have events handled at least once. One that fails is tried again by this handler alone, then put aside."""
        subscription_id = await self.subscribe(subscription)
        if any(other.name == name and other.subscription_id == subscription_id for other in self._handlers):
            raise UsageError(f"there is a handler {name!r} of this subscription", remedy="give each its own name")
        handler = Handler(name, subscription_id, handle, tuple(retries_s), timeout_s)
        self._handlers.append(handler)
        self._workers[handler] = asyncio.create_task(handler.run(self._settle), name=f"handler {name}")
        self._wake.set()
        return subscription_id

    async def run(self) -> None:
        """Dispatch, read and handle until cancelled; then give the group back."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._dispatch, self._listen, self._read, self._stay_alive, self._maintain):
                    tasks.create_task(_persist(work))
        finally:
            await self._release()

    async def _dispatch(self) -> None:
        pause = POLL_S
        while True:
            rows = await self._fetch("select dispatched, more from poll_for_events_v1()")
            pause = POLL_S if rows[0][0] else min(IDLE_POLL_S, pause * 1.5)
            if not rows[0][1]:
                await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """A hint, no more: what it misses is found by looking."""
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, options=self._options
        ) as connection:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(f"{self.schema}_events")))
            async for _ in connection.notifies():
                self._wake.set()

    async def _read(self) -> None:
        while True:
            self._wake.clear()
            if not self._handlers or len(self._checkpoints) >= READ_AHEAD or not await self._read_once():
                try:
                    async with asyncio.timeout(IDLE_POLL_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
            await self._acknowledge()

    async def _read_once(self) -> bool:
        """False: nothing to do, or an event that has no handler yet, which must not be passed over."""
        rows = await self._fetch(
            "select id, topic, payload, metadata, at, subscription_ids, retry, pos, gap is not null, epoch"
            " from read_next_events_v1(%s, %s, %s, false, %s)",
            self.group,
            self._cursor,
            self.chunk,
            self.id,
        )
        if rows and self._epoch is not None and rows[0][9] != self._epoch:
            self._begin_again()  # another one has read in between, from where the group is
            return True
        batches: dict[Handler, list[Event]] = {}
        last: int | None = None
        for event_id, topic, payload, metadata, at, subs, retry, pos, gone, epoch in rows:
            self._epoch = epoch
            if gone:
                logger.error("the group %s is overrun: positions up to %d are gone", self.group, pos)
            elif not await self._assign(
                batches, Event(event_id, topic, payload, metadata, at, (retry or {}).get("attempt", 1)), subs, retry
            ):
                break
            last = pos
        if last is None:
            return False
        self._hand_out(batches, last)
        return True

    async def _assign(
        self, batches: dict[Handler, list[Event]], event: Event, subs: Sequence[int], retry: dict[str, Any] | None
    ) -> bool:
        known = {handler.subscription_id for handler in self._handlers}
        if missing := [sid for sid in subs if sid not in known]:
            alive = await self._fetch(
                "select 1 from subscriptions where id = any (%s) and expired_at is null limit 1", missing
            )
            if alive:
                return False
        for handler in self._handlers:
            if handler.wants(subs, retry):
                batches.setdefault(handler, []).append(event)
        return True

    def _hand_out(self, batches: dict[Handler, list[Event]], cursor: int) -> None:
        checkpoint = _Checkpoint(cursor, len(batches))
        self._checkpoints.append(checkpoint)
        self._cursor = cursor

        def done() -> None:
            checkpoint.open -= 1
            self._wake.set()

        for handler, events in batches.items():
            handler.queue.put_nowait(Batch(events, done))

    async def _acknowledge(self) -> None:
        cursor = None
        while self._checkpoints and self._checkpoints[0].open == 0:
            cursor = self._checkpoints.popleft().cursor
        if cursor is None:
            return
        try:
            statement = "select set_group_cursor_v1(%s, %s, false, %s, %s)"
            await self._fetch(statement, self.group, cursor, self.id, self._epoch)
        except psycopg.Error as error:
            if error.sqlstate != LEASE_LOST:
                raise
            self._begin_again()

    def _begin_again(self) -> None:
        """Another one reads the group by now, or has: what is in hand will be handled by it, or again."""
        self._checkpoints.clear()
        self._cursor = self._epoch = None

    async def _settle(self, handler: Handler, events: Sequence[Event], error: str) -> None:
        for event in events:
            await _persist(partial(self._settle_one, handler, event, error))

    async def _settle_one(self, handler: Handler, event: Event, error: str) -> None:
        values = (handler.subscription_id, handler.name, event.id)
        delay = handler.delay_s(event.attempt)
        if delay is None:
            await self._fetch("select bury_v1(%s, %s, array[%s]::bigint[], %s, %s)", *values, event.attempt, error)
        else:
            statement = "select retry_v1(%s, %s, array[%s]::bigint[], %s, %s, make_interval(secs => %s))"
            await self._fetch(statement, *values, event.attempt + 1, error, delay)

    async def _stay_alive(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._fetch("select heartbeat_v1(%s)", self.id)
            if self._checkpoints:
                await self._fetch("select hold_group_v1(%s, %s)", self.group, self.id)

    async def _maintain(self) -> None:
        while True:
            await self._fetch("select 1 from maintain_v1()")
            await asyncio.sleep(MAINTENANCE_S)

    async def _release(self) -> None:
        if self._epoch is not None:
            await self._acknowledge()
            await self._fetch("select release_group_v1(%s, %s)", self.group, self.id)
            self._begin_again()

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(statement.encode(), values)
            return await cursor.fetchall()


async def _persist(work: Callable[[], Awaitable[None]]) -> None:
    """Do something until it is done, through failures of the database."""
    while True:
        try:
            return await work()
        except psycopg.OperationalError as error:
            logger.warning("the database does not answer: %s", type(error).__name__)
            await asyncio.sleep(RECONNECT_S)
