"""What some client has to do for all: dispatch and maintain. The one that has been there longest does.

Who lives is in the table `clients`: every client says so there every few seconds. There is no lock to hold, so this
works through poolers, and if two believe for a moment that it is them, or nobody does, nothing breaks: one at a time
dispatches whatever they believe, and the next in line looks every second.

Who is on duty is woken by commits: it says that it wants to be, and those who publish notify it. While there is a lot
to do it does not want to be, because notifying costs those who publish, and looks again after a moment instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from headgate.broker.database import Database, wait
from headgate.runtime.timings import Timings

__all__ = ["Duties", "new_client_id"]

PREFIX = "broker-client-"  # of those who take part; others may be in that table, too
POLL_LIMIT_S = 10.0  # a condition that takes for ever is cancelled then, and parked
POLL_S = (
    0.01  # between polls while there is much to dispatch, or nobody wakes us; it gets longer when there is nothing,
)
IDLE_S = 0.25  # up to this, for the one whose duty it is: what is scheduled notifies nobody;
STANDBY_S = 1.0  # the next in line looks so often,
OTHERS_S = 10.0  # and all others, now and then;
OWN_S = 0.3  # so long after they have published something themselves, in case that nobody is on duty
BUSY = 20  # events in one poll that are more than one would be woken for
HEARTBEAT_S = 5.0
ALIVE_S = 15.0
MAINTENANCE_S = 60.0

# We are alive; and those who are, the longest first.
HEARTBEAT = (
    "select {schema}.heartbeat_v1(%s), {schema}.server_history(), array(select id from {schema}.clients"
    " where starts_with(id, %s) and {schema}.is_alive(last_active_at, make_interval(secs => %s)) order by id limit 2)"
)
WANT = "select {schema}.heartbeat_v1(%s, %s)"
# The setting ends with the statement: what it publishes need not wake us.
POLL = (
    "select p.dispatched, p.more from (select set_config('headgate.dispatching', 'on', true)) as s(value),"
    " lateral {schema}.poll_for_events_v1(nullif(length(s.value), 2), %s) as p"
)


def new_client_id() -> str:
    """Return a new id, by which clients that began later sort later. Clocks may differ without harm."""
    return f"{PREFIX}{time.time_ns():016x}-{uuid4().hex[:8]}"


class Duties:
    """The share of one client in what has to be done."""

    def __init__(self, database: Database, client_id: str, came_back: Callable[[], Awaitable[None]]) -> None:
        self._database, self._id, self._came_back = database, client_id, came_back
        self.on_duty = False
        self.timings = Timings()  # of polls that dispatched something
        self._is_next = False
        self._heartbeat_s = HEARTBEAT_S
        self._last_heartbeat: float | None = None
        self._history: str | None = None  # of the server, which a failover changes
        self._hears = False  # of what is published
        self._wanted = False  # to be woken
        self._changed = asyncio.Event()
        self._duty, self._free = asyncio.Event(), asyncio.Event()
        self._published = asyncio.Event()
        self._turned = asyncio.Event()

    @property
    def loops(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What has to run."""
        return self.heartbeat, self.hear, self.dispatch, self.maintain

    def published(self) -> None:
        """There is something to dispatch: no need to wait until somebody looks."""
        self._published.set()

    def live_up_to(self, expiry: timedelta | None) -> None:
        """Say that we live often enough for this."""
        if expiry is not None:
            self._heartbeat_s = min(self._heartbeat_s, expiry.total_seconds() / 3)

    async def heartbeat(self) -> None:
        """Say that we live, and see whether it is our turn."""
        while True:
            first, *others = await self._be_alive()
            if (first == self._id, self._id in others) != (self.on_duty, self._is_next):
                self.on_duty, self._is_next = first == self._id, self._id in others
                (self._duty if self.on_duty else self._free).set()
                (self._free if self.on_duty else self._duty).clear()
                self._changed.set()
                self._look()
            if self.on_duty and self._wanted:
                await self._want(True)
            await asyncio.sleep(self._heartbeat_s)

    async def hear(self) -> None:
        """Be woken by those who publish, for as long as we are on duty."""
        while True:
            await self._duty.wait()
            listening = asyncio.ensure_future(
                self._database.listen(lambda _: self.published(), "published", self._hear)
            )
            relieved = asyncio.ensure_future(self._free.wait())
            try:
                await asyncio.wait([listening, relieved], return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    listening.result()
            finally:
                listening.cancel()
                relieved.cancel()
                await asyncio.gather(listening, relieved, return_exceptions=True)

    async def dispatch(self) -> None:
        pause, is_busy = POLL_S, False
        while True:
            self._published.clear()
            self._turned.clear()
            began = time.monotonic()
            ((dispatched, more),) = await self._database.fetch_within(POLL_LIMIT_S, POLL, not is_busy)
            if dispatched:
                self.timings.observe(time.monotonic() - began)
            is_busy = more or dispatched >= BUSY
            if self._wanted != (self._hears and not is_busy):
                await self._want(self._hears and not is_busy)
                continue  # what was committed before that has told nobody
            if more:
                continue
            if not self._wanted:
                # Not at once, however much is published: what comes in the meantime goes with it.
                await wait(self._turned, POLL_S if self.on_duty or dispatched else OWN_S)
            pause = POLL_S if dispatched else min(pause * 1.5, IDLE_S)
            await wait(self._published, pause if self.on_duty else STANDBY_S if self._is_next else OTHERS_S)

    async def maintain(self) -> None:
        while True:
            self._changed.clear()
            if self.on_duty:
                await self._database.fetch("select 1 from {schema}.maintain_v1()")
            await wait(self._changed, MAINTENANCE_S)

    async def leave(self, subscription_ids: Sequence[int]) -> None:
        """End: the next one is on duty from its next heartbeat on."""
        for sid in subscription_ids:
            await self._database.fetch("select {schema}.leave_v1(%s, %s)::text", self._id, sid)
        await self._database.fetch("delete from {schema}.clients where id = %s returning 1", self._id)

    def _hear(self, hearing: bool) -> None:
        self._hears = hearing
        self._look()

    def _look(self) -> None:
        """Our part has changed."""
        self._turned.set()
        self._published.set()

    async def _want(self, wanted: bool) -> None:
        await self._database.fetch(WANT, self._id, wanted)
        self._wanted = wanted

    async def _be_alive(self) -> Sequence[str]:
        """Write a heartbeat; return the ids of the client on duty and of the next in line."""
        ((known, history, alive),) = await self._database.fetch(HEARTBEAT, self._id, PREFIX, ALIVE_S)
        if not known:
            statement = "insert into {schema}.clients (id) values (%s) on conflict do nothing returning 1"
            await self._database.fetch(statement, self._id)
        now = asyncio.get_running_loop().time()
        late = self._last_heartbeat is not None and now - self._last_heartbeat > 2 * self._heartbeat_s
        moved = self._history is not None and history != self._history
        if late or moved or (not known and self._last_heartbeat is not None):
            await self._came_back()  # we may have been taken for dead, or the server may never have heard of us
        self._last_heartbeat, self._history = now, history
        return sorted({*alive, self._id})[:2]  # a new one is not in the table yet
