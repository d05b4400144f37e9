"""A group's events for its handlers: read ahead, handed out, and acknowledged when all before them are done, too."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import psycopg

from headgate.broker.database import Database, persist, wait
from headgate.broker.handlers import Batch, Handler
from headgate.broker.messages import Event

__all__ = ["HOLD_S", "LOOK_DEAF_S", "LOOK_S", "GroupReader"]

logger = logging.getLogger(__name__)

LEASE_LOST = "HG001"
READ_AHEAD = 10  # reads that may wait for slow handlers
HOLD_S = 5.0  # a third of a lease
LOOK_S = 10.0  # between looks at what may have been missed, while the dispatcher tells us,
LOOK_DEAF_S = 0.5  # and while it cannot

READ = (
    "select id, topic, payload, metadata, at, subscription_ids, retry, pos, gap is not null, epoch"
    " from read_next_events_v1(%s, %s, %s, false, %s)"
)


@dataclass(eq=False)
class _Checkpoint:
    """A read whose batches are being handled."""

    cursor: int
    open: int


class GroupReader:
    """Reads one group for the handlers of one client, if no other client does."""

    def __init__(self, database: Database, group: str, owner: str, chunk: int) -> None:
        self._database, self.group, self.owner, self._chunk = database, group, owner, chunk
        self.handlers: list[Handler] = []
        self.gno: str | None = None  # as notifications name the group
        self._checkpoints: deque[_Checkpoint] = deque()
        self._cursor: int | None = None  # where to read on; None: where the group is
        self._epoch: int | None = None
        self._waits_for: int | None = None
        self._wake = asyncio.Event()
        self._done = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether there is something in hand."""
        return bool(self._checkpoints)

    def wake(self) -> None:
        """There may be something to read."""
        self._wake.set()

    def add(self, handler: Handler) -> None:
        self.handlers.append(handler)
        self._wake.set()

    async def read(self) -> None:
        """Read on and on."""
        while True:
            self._wake.clear()
            if not self.handlers or len(self._checkpoints) >= READ_AHEAD or not await self._read_once():
                await wait(self._wake, LOOK_S if self._database.listening else LOOK_DEAF_S)

    async def acknowledge(self) -> None:
        """Move the cursor whenever something is done."""
        while True:
            await self._done.wait()
            await self._acknowledge()

    async def finish(self) -> None:
        """Wait until all that is in hand has been handled and acknowledged."""
        while self._checkpoints:
            await persist(self._acknowledge)
            if self._checkpoints:
                await wait(self._done, HOLD_S)
                await persist(self.hold)

    async def hold(self) -> None:
        """Handlers may take longer than a lease."""
        if self._checkpoints:
            await self._database.fetch("select hold_group_v1(%s, %s)", self.group, self.owner)

    async def release(self) -> None:
        """Let another one read, at once."""
        if self.gno is None:
            return
        await self._acknowledge()
        released = await self._database.fetch("select release_group_v1(%s, %s)", self.group, self.owner)
        if released[0][0]:
            await self._database.fetch("select pg_notify(current_schema() || '_events', %s)::text", self.gno)
        self._begin_again()

    async def _read_once(self) -> bool:
        """True: there is more. An event that has no handler yet must not be passed over."""
        rows = await self._database.fetch(READ, self.group, self._cursor, self._chunk, self.owner)
        if rows and self._epoch is not None and rows[0][9] != self._epoch:
            self._begin_again()  # another one has read in between, or the group was set back
            return True
        batches: dict[Handler, list[Event]] = {}
        last: int | None = None
        for event_id, topic, payload, metadata, at, subs, retry, pos, gone, epoch in rows:
            self._epoch = epoch
            if gone:
                logger.error("the group %s is overrun: positions up to %d are gone", self.group, pos)
            elif await self._is_unserved(subs):
                break
            else:
                event = Event(event_id, topic, payload, metadata, at, (retry or {}).get("attempt", 1))
                await self._assign(batches, event, subs, retry)
            last = pos
        if last is None:
            return False
        self._hand_out(batches, last)
        return last == rows[-1][7] and (len(rows) == self._chunk or rows[-1][8])

    async def _is_unserved(self, subs: Sequence[int]) -> bool:
        served = {handler.subscription_id for handler in self.handlers}
        missing = [sid for sid in subs if sid not in served]
        if not missing:
            return False
        statement = "select id from subscriptions where id = any (%s) and expired_at is null limit 1"
        alive = await self._database.fetch(statement, missing)
        if alive and alive[0][0] != self._waits_for:
            self._waits_for = alive[0][0]
            logger.warning("the group %s waits for a handler of its subscription %d", self.group, self._waits_for)
        return bool(alive)

    async def _assign(
        self, batches: dict[Handler, list[Event]], event: Event, subs: Sequence[int], retry: dict[str, Any] | None
    ) -> None:
        wanted = False
        for handler in self.handlers:
            if handler.wants(subs, retry):
                batches.setdefault(handler, []).append(event)
                wanted = True
        if retry is not None and not wanted:
            # Its handler has another name by now. Nobody else may have it, and it must not get lost.
            error = "there is no handler of this name any more"
            statement = "select bury_v1(%s, %s, array[%s]::bigint[], %s, %s)"
            await self._database.fetch(statement, subs[0], retry["handler"], event.id, event.attempt, error)

    def _hand_out(self, batches: dict[Handler, list[Event]], cursor: int) -> None:
        checkpoint = _Checkpoint(cursor, len(batches))
        self._checkpoints.append(checkpoint)
        self._cursor = cursor

        def done() -> None:
            checkpoint.open -= 1
            self._done.set()

        for handler, events in batches.items():
            handler.queue.put_nowait(Batch(events, done))
        if not batches:
            self._done.set()

    async def _acknowledge(self) -> None:
        self._done.clear()
        finished = list(takewhile(lambda checkpoint: checkpoint.open == 0, self._checkpoints))
        if not finished:
            return
        try:
            statement = "select set_group_cursor_v1(%s, %s, false, %s, %s)"
            await self._database.fetch(statement, self.group, finished[-1].cursor, self.owner, self._epoch)
        except psycopg.Error as error:
            self._done.set()  # whoever tries again has something to do
            if error.sqlstate != LEASE_LOST:
                raise
            self._begin_again()
            return
        was_full = len(self._checkpoints) >= READ_AHEAD
        while self._checkpoints and self._checkpoints[0] in finished:
            self._checkpoints.popleft()
        if not self._checkpoints:
            self._cursor = None  # it is where the group is: should that be set back, the next read follows
        if was_full:
            self._wake.set()

    def _begin_again(self) -> None:
        """Another one reads the group by now, or has: what is in hand will be handled by it, or again."""
        self._checkpoints.clear()
        for handler in self.handlers:
            handler.forget()
        self._cursor = self._epoch = None
        self._wake.set()

    async def settle(self, handler: Handler, event: Event, error: str, delay_s: float | None) -> None:
        """Write down that an event could not be handled: it comes again later, or is put aside."""
        await persist(partial(self._settle, handler, event, error, delay_s), whatever=True)

    async def _settle(self, handler: Handler, event: Event, error: str, delay_s: float | None) -> None:
        values = (handler.subscription_id, handler.name, event.id)
        if delay_s is None:
            statement = "select bury_v1(%s, %s, array[%s]::bigint[], %s, %s)"
            await self._database.fetch(statement, *values, event.attempt, error)
        else:
            statement = "select retry_v1(%s, %s, array[%s]::bigint[], %s, %s, make_interval(secs => %s))"
            await self._database.fetch(statement, *values, event.attempt + 1, error, delay_s)
