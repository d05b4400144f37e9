"""What some client has to do for all: dispatch and maintain. The one that has been there longest does.

Who lives is in the table `clients`: every client says so there every few seconds. There is no lock to hold, so this
works through poolers, and if two believe for a moment that it is them, or nobody does, nothing breaks: one at a time
dispatches whatever they believe, and all of them look now and then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from headgate.broker.database import Database, wait

__all__ = ["Duties", "new_client_id"]

PREFIX = "broker-client-"  # of those who take part; others may be in that table, too
POLL_S = 0.01  # between polls while there is something to dispatch; it gets longer when there is nothing,
IDLE_S = 0.25  # up to this, for the one whose duty it is;
OTHERS_S = 10.0  # all others look now and then, and when they have published something
HEARTBEAT_S = 5.0
ALIVE_S = 15.0
MAINTENANCE_S = 60.0

# We are alive; and who of those that are has been there longest.
HEARTBEAT = (
    "select {schema}.heartbeat_v1(%s), {schema}.server_history(), (select id from {schema}.clients"
    " where starts_with(id, %s) and {schema}.is_alive(last_active_at, make_interval(secs => %s)) order by id limit 1)"
)
POLL = "select dispatched, more from {schema}.poll_for_events_v1()"


def new_client_id() -> str:
    """Those that begin later sort later. Clocks differ, and it does not matter if they do."""
    return f"{PREFIX}{time.time_ns():016x}-{uuid4().hex[:8]}"


class Duties:
    """The share of one client in what has to be done."""

    def __init__(self, database: Database, client_id: str, came_back: Callable[[], Awaitable[None]]) -> None:
        self._database, self._id, self._came_back = database, client_id, came_back
        self.on_duty = False
        self._heartbeat_s = HEARTBEAT_S
        self._last_heartbeat: float | None = None
        self._history: str | None = None  # of the server, which a failover changes
        self._changed = asyncio.Event()
        self._published = asyncio.Event()

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
            on_duty = await self._be_alive() == self._id
            if on_duty != self.on_duty:
                self.on_duty = on_duty
                self._changed.set()
                self._published.set()
            await asyncio.sleep(self._heartbeat_s)

    async def dispatch(self) -> None:
        pause = POLL_S
        while True:
            self._published.clear()
            ((dispatched, more),) = await self._database.fetch(POLL)
            if more:
                continue
            longer = min(pause * 1.5, IDLE_S) if self.on_duty else OTHERS_S
            pause = POLL_S if dispatched else longer
            # Not at once, however much is published: what comes in the meantime goes with it.
            await asyncio.sleep(POLL_S)
            await wait(self._published, pause - POLL_S)

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

    async def _be_alive(self) -> str:
        """Who is on duty."""
        ((known, history, first),) = await self._database.fetch(HEARTBEAT, self._id, PREFIX, ALIVE_S)
        if not known:
            statement = "insert into {schema}.clients (id) values (%s) on conflict do nothing returning 1"
            await self._database.fetch(statement, self._id)
        now = asyncio.get_running_loop().time()
        late = self._last_heartbeat is not None and now - self._last_heartbeat > 2 * self._heartbeat_s
        moved = self._history is not None and history != self._history
        if late or moved or (not known and self._last_heartbeat is not None):
            await self._came_back()  # we may have been taken for dead, or the server may never have heard of us
        self._last_heartbeat, self._history = now, history
        return first or self._id
