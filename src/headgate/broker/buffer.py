"""A buffer for those who publish a lot, one by one: many messages go to the server in one statement.

Its memory has a bound, and whoever fills it waits. The order is kept. A flush that fails because the server is away is
tried again; should the connection have broken while it was being committed, its messages are published twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import psycopg

from headgate.broker.database import persist, wait
from headgate.broker.errors import broker_error
from headgate.broker.messages import Message
from headgate.broker.transactions import Encoded, encode
from headgate.model import DeliveryError, UsageError

__all__ = ["PublishBuffer"]

logger = logging.getLogger(__name__)

# Publishes what is encoded, in one transaction; the ids of those that are not for later.
Publish = Callable[[Sequence[Encoded]], Awaitable[list[int]]]
_Waiting = tuple[Encoded, "asyncio.Future[int | None]"]

LIMIT_CHARS = 64 * 1024 * 1024


class PublishBuffer:
    """Messages that wait to be published together: for `size` of them, or for `interval_s`."""

    def __init__(self, publish: Publish, *, size: int, interval_s: float, limit: int) -> None:
        self._publish, self._size, self._interval_s, self._limit = publish, size, interval_s, limit
        self._waiting: deque[_Waiting] = deque()
        self._chars = 0
        self._changed = asyncio.Condition()
        self._due = asyncio.Event()  # do not wait for more
        self._urgent = 0  # so many have been asked for
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    async def put(self, message: Message) -> asyncio.Future[int | None]:
        """Wait for room; then the future of the event's id, which is None if it is for later."""
        encoded = encode(message)  # now: the payload may change, and the trace is that of the caller
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_log_failure)
        async with self._changed:
            await self._changed.wait_for(self._has_room)
            if self._ended:
                raise UsageError("the client has ended", remedy="publish before it does")
            self._waiting.append((encoded, future))
            self._chars += len(encoded.text)
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="publish buffer")
            if len(self._waiting) >= self._size:
                self._due.set()
            self._changed.notify_all()
        return future

    async def flush(self) -> None:
        """Publish what is waiting, and wait until it is."""
        waiting = [future for _, future in self._waiting]
        self._urgent = len(waiting)
        self._due.set()
        if waiting:
            await asyncio.wait(waiting)

    async def end(self, deadline_s: float) -> None:
        """Flush for so long; those that are left have failed."""
        self._ended = True
        async with self._changed:
            self._changed.notify_all()
        try:
            async with asyncio.timeout(deadline_s):
                await self.flush()
        except TimeoutError:
            logger.error("%d messages were not published: the database does not answer", len(self._waiting))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(DeliveryError("the client ended first", remedy="publish it again"))
        self._waiting.clear()

    def _has_room(self) -> bool:
        return self._ended or (len(self._waiting) < self._limit and self._chars < LIMIT_CHARS)

    async def _run(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._waiting))
            if not self._ended:
                await wait(self._due, self._interval_s)
            self._due.clear()
            await self._flush_once()

    async def _flush_once(self) -> None:
        # They stay in the buffer until they are published, so that its bound counts them.
        batch = [self._waiting[number] for number in range(min(self._size, len(self._waiting)))]
        await self._publish_all(batch)
        async with self._changed:
            for encoded, _ in batch:
                self._waiting.popleft()
                self._chars -= len(encoded.text)
            self._urgent = max(0, self._urgent - len(batch))
            if self._urgent or len(self._waiting) >= self._size:
                self._due.set()
            self._changed.notify_all()

    async def _publish_all(self, batch: Sequence[_Waiting]) -> None:
        try:
            ids = iter(await persist(partial(self._publish, [encoded for encoded, _ in batch])))
        except psycopg.Error as error:
            await self._find_bad(batch, error)
            return
        for encoded, future in batch:
            event_id = None if encoded.later else next(ids)
            if not future.done():
                future.set_result(event_id)

    async def _find_bad(self, batch: Sequence[_Waiting], error: psycopg.Error) -> None:
        """The server refused something in this batch: halves of it, in order, until it is one message."""
        if len(batch) > 1:
            await self._publish_all(batch[: len(batch) // 2])
            await self._publish_all(batch[len(batch) // 2 :])
        elif not batch[0][1].done():
            batch[0][1].set_exception(broker_error(error, "publish"))


def _log_failure(future: asyncio.Future[int | None]) -> None:
    """Also if nobody waits for it."""
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.error("a message was not published: %s", type(error).__name__)
