"""A group's events for its handlers: read ahead, handed out, and acknowledged when all before them are done, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import psycopg

from headgate.broker.database import LOOK_DEAF_S, Database, persist, wait
from headgate.broker.handlers import Batch, Handler
from headgate.broker.messages import Event
from headgate.broker.tenure import Checkpoint, Tenure

__all__ = ["HOLD_S", "LOOK_S", "GroupReader"]

logger = logging.getLogger(__name__)

LEASE_LOST = "HG001"
READ_AHEAD = 10  # reads that may wait for slow handlers
HOLD_S = 5.0  # a third of a lease
LOOK_S = 10.0  # between looks at what may have been missed, while the dispatcher tells us
ASIDE_S = (0.5, 10.0)  # how long to leave the group to those who can serve it: at first, and at most
TELL_S = 60.0  # between words about a group that waits for a handler

READ = (
    "select id, topic, payload, metadata, at, subscription_ids, retry, pos, gap is not null, epoch"
    " from {schema}.read_next_events_v1(%s, %s, %s, false, %s)"
)
BURY = "select 1 from {schema}.bury_v2(%s, %s, %s, %s, %s, %s, %s, %s)"
RETRY = "select {schema}.retry_v2(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


class _Row(NamedTuple):
    """What a read returns."""

    id: int
    topic: str
    payload: Any
    metadata: Any
    at: Any
    subscription_ids: Sequence[int]
    retry: dict[str, Any] | None
    pos: int
    gone: bool
    epoch: int


class GroupReader:
    """Reads one group for the handlers of one client, if no other client does."""

    def __init__(self, database: Database, group: str, owner: str, chunk: int) -> None:
        self._database, self.group, self.owner, self._chunk = database, group, owner, chunk
        self.handlers: list[Handler] = []
        self.gno: str | None = None  # as notifications name the group
        self._wanted = True  # False: it is another client's share
        self._tenure = Tenure()
        self._unserved: int | None = None  # a subscription that has events next, and no handler here
        self._aside_s = ASIDE_S[0]
        self._told_at: float | None = None
        self._wake = asyncio.Event()
        self._done = asyncio.Event()
        self._changed = asyncio.Event()  # handlers have come or gone

    @property
    def busy(self) -> bool:
        """Whether there is something in hand."""
        return bool(self._tenure.checkpoints)

    def wake(self) -> None:
        """There may be something to read."""
        self._wake.set()

    def want(self, wanted: bool) -> None:
        """Whether to read the group, or to leave it to another client when what is in hand is done."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()
            self._wake.set()

    def add(self, handler: Handler) -> None:
        self.handlers.append(handler)
        self.handlers_changed()

    def handlers_changed(self) -> None:
        """What could not be served may be by now."""
        self._unserved = None
        self._changed.set()
        self._wake.set()

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Subscriptions may have other numbers by now."""
        for handler in self.handlers:
            handler.subscription_id = numbers.get(handler.subscription_id, handler.subscription_id)
        self.handlers_changed()

    async def read(self) -> None:
        """Read on and on."""
        while True:
            self._wake.clear()
            if not self._wanted and not self.busy:
                await self._leave_to_others()
            elif self._unserved is not None and not self.busy:
                await self._step_aside()
            elif not self._may_read() or not await self._read_once():
                await wait(self._wake, LOOK_S if self._database.listening else LOOK_DEAF_S)

    async def acknowledge(self) -> None:
        """Move the cursor whenever something is done."""
        while True:
            await self._done.wait()
            await self._acknowledge()

    async def finish(self) -> None:
        """Wait until all that is in hand has been handled and acknowledged."""
        while self.busy:
            await persist(self._acknowledge)
            if self.busy:
                await wait(self._done, HOLD_S)
                await persist(self.hold)

    async def hold(self) -> None:
        """Handlers may take longer than a lease."""
        if self.busy:
            await self._database.fetch("select {schema}.hold_group_v1(%s, %s)", self.group, self.owner)

    async def release(self) -> None:
        """Let another one read, at once."""
        if self.gno is None:
            return
        await self._acknowledge()
        released = await self._database.fetch("select {schema}.release_group_v1(%s, %s)", self.group, self.owner)
        self._begin_again(self._tenure)
        if released[0][0]:
            await self._database.notify("events", self.gno)

    def _may_read(self) -> bool:
        may = self._wanted and bool(self.handlers) and self._unserved is None
        return may and len(self._tenure.checkpoints) < READ_AHEAD

    async def _read_once(self) -> bool:
        """Ask for what comes next, and hand it out. True: there is more.

        The tenure is the one that the question was asked in: it may be over when the answer comes, or while we look at
        it, and then the answer begins behind what the next one has still to handle.
        """
        tenure = self._tenure
        answer = await self._database.fetch(READ, self.group, tenure.cursor, self._chunk, self.owner)
        rows = [_Row(*row) for row in answer]
        if not rows or tenure.over:
            return tenure.over
        if tenure.epoch is not None and rows[0].epoch != tenure.epoch:
            self._begin_again(tenure)  # another one has read in between, or the group was moved
            return True
        tenure.epoch = rows[0].epoch
        expired = await self._expired(rows)
        elsewhere = await self._bury_orphans(tenure, rows, expired)
        # From here on nothing is awaited: handlers and the tenure stay what they are.
        return True if tenure.over else self._hand_out(tenure, rows, expired, elsewhere)

    def _hand_out(self, tenure: Tenure, rows: Sequence[_Row], expired: set[int], elsewhere: set[int]) -> bool:
        """Give handlers what is theirs, up to the first event that none of them can take. True: there is more."""
        batches: dict[Handler, list[Event]] = {}
        served = {handler.subscription_id for handler in self.handlers} | expired
        last: int | None = None
        for row in rows:
            if row.gone:
                logger.error("the group %s is overrun: positions up to %d are gone", self.group, row.pos)
            elif row.id in elsewhere or not served.issuperset(row.subscription_ids):
                self._unserved = next((sid for sid in row.subscription_ids if sid not in served), -1)
                break
            else:
                self._assign(batches, row)
            last = row.pos
        if last is not None:
            self._queue(tenure, batches, last)
        if self._unserved is None:
            self._aside_s, self._told_at = ASIDE_S[0], None
        return self._unserved is not None or len(rows) == self._chunk or rows[-1].gone

    def _assign(self, batches: dict[Handler, list[Event]], row: _Row) -> None:
        attempt = (row.retry or {}).get("attempt", 1)
        event = Event(row.id, row.topic, row.payload, row.metadata, row.at, attempt)
        for handler in self.handlers:
            if handler.wants(row.subscription_ids, row.retry):
                batches.setdefault(handler, []).append(event)

    def _queue(self, tenure: Tenure, batches: dict[Handler, list[Event]], cursor: int) -> None:
        checkpoint = Checkpoint(cursor, len(batches))
        tenure.checkpoints.append(checkpoint)
        tenure.cursor = cursor

        def done() -> None:
            checkpoint.open -= 1
            self._done.set()

        for handler, events in batches.items():
            handler.queue.put_nowait(Batch(events, done, tenure))
        if not batches:
            self._done.set()

    async def _expired(self, rows: Iterable[_Row]) -> set[int]:
        """Subscriptions of these events that nobody serves here, and nobody has to."""
        served = {handler.subscription_id for handler in self.handlers}
        missing = {sid for row in rows if not row.gone for sid in row.subscription_ids} - served
        if not missing:
            return set()
        statement = "select id from {schema}.subscriptions where id = any (%s) and expired_at is null"
        alive = await self._database.fetch(statement, list(missing))
        return missing - {sid for (sid,) in alive}

    async def _bury_orphans(self, tenure: Tenure, rows: Iterable[_Row], expired: set[int]) -> set[int]:
        """Put aside retries whose handler has another name by now: nobody else may have them, and they must not get
        lost. One that another living client has the handler for is left to it: its id.
        """
        served = {handler.subscription_id for handler in self.handlers} | expired
        for row in rows:
            if not row.gone and not served.issuperset(row.subscription_ids):
                break  # it comes again, and so does what is after it
            if row.retry is None or any(each.wants(row.subscription_ids, row.retry) for each in self.handlers):
                continue
            sid, name = row.subscription_ids[0], row.retry["handler"]
            statement = "select {schema}.has_handler_elsewhere_v1(%s, %s, %s)"
            if (await self._database.fetch(statement, sid, name, self.owner))[0][0]:
                return {row.id}
            error = "there is no handler of this name any more"
            await self._note(tenure, BURY, sid, name, [row.id], row.retry.get("attempt", 1), error)
        return set()

    async def _step_aside(self) -> None:
        """Leave the group to a client that has the handler we lack; look again later, or when handlers change."""
        self._changed.clear()
        self._tell()
        await self.release()
        await wait(self._changed, self._aside_s)
        self._aside_s = min(self._aside_s * 2, ASIDE_S[1])
        self._unserved = None

    async def _leave_to_others(self) -> None:
        """Let go of the group; but try it once in a while, in case that those whose share it is cannot serve it."""
        self._changed.clear()
        await self.release()
        await wait(self._changed, LOOK_S)
        self._unserved = None
        if self.handlers and not self._wanted:
            await self._read_once()

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._told_at is not None and now - self._told_at < TELL_S:
            return
        self._told_at = now
        if self._unserved == -1:
            logger.warning("the group %s goes to a client that has the handler of a retry", self.group)
            return
        logger.warning(
            "the group %s waits at an event for its subscription %d, which has no handler in this program: register"
            " one, or see `headgate broker subscriptions` and remove it with `headgate broker unsubscribe %d`",
            self.group,
            self._unserved,
            self._unserved,
        )

    async def _acknowledge(self) -> None:
        self._done.clear()
        tenure = self._tenure
        finished = tenure.finished()
        if not finished:
            return
        try:
            statement = "select {schema}.set_group_cursor_v1(%s, %s, false, %s, %s)"
            await self._database.fetch(statement, self.group, finished[-1].cursor, self.owner, tenure.epoch)
        except psycopg.Error as error:
            self._done.set()  # whoever tries again has something to do
            if error.sqlstate != LEASE_LOST:
                raise
            self._begin_again(tenure)
            return
        was_full = len(tenure.checkpoints) >= READ_AHEAD
        tenure.acknowledged(finished)
        leaving = self._unserved is not None or not self._wanted
        if was_full or (leaving and not tenure.checkpoints):
            self._wake.set()

    def _begin_again(self, tenure: Tenure) -> None:
        """Another one reads the group by now, or has, or it was moved."""
        if tenure is not self._tenure:
            return  # we have begun again already
        tenure.end()
        self._tenure = Tenure()
        for handler in self.handlers:
            handler.forget()
        self._wake.set()

    async def settle(self, tenure: Tenure, handler: Handler, event: Event, error: str, delay_s: float | None) -> None:
        """Write down that an event could not be handled: it comes again later, or is put aside."""
        await persist(partial(self._settle, tenure, handler, event, error, delay_s), whatever=True)

    async def _settle(self, tenure: Tenure, handler: Handler, event: Event, error: str, delay_s: float | None) -> None:
        values = (handler.subscription_id, handler.name, [event.id])
        if delay_s is None:
            await self._note(tenure, BURY, *values, event.attempt, error)
        else:
            await self._note(tenure, RETRY, *values, event.attempt + 1, error, delay_s)

    async def _note(self, tenure: Tenure, statement: str, *values: Any) -> None:
        """Not for a group that we have lost: whoever has it now handles the event, and notes what comes of it."""
        try:
            await self._database.fetch(statement, self.group, self.owner, tenure.epoch, *values)
        except psycopg.Error as error:
            if error.sqlstate != LEASE_LOST:
                raise
            self._begin_again(tenure)
