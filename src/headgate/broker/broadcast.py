"""Events for whoever listens right now: nothing is kept for those who do not, and nobody waits for the slow.

Each client has a group of its own for these, beside that of its reliable handlers: every client gets all of them, and
no cursor but its own depends on it. Equal subscriptions of a client are one, whatever the number of its listeners.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Self
from weakref import WeakSet

from headgate.broker.database import LOOK_DEAF_S, Database, wait
from headgate.broker.messages import Event, Payload, Subscription
from headgate.broker.payloads import check_readable
from headgate.broker.reading import LOOK_S
from headgate.model import CapacityError, DataError, Kind, StateError, UsageError

__all__ = ["Broadcast", "EventStream", "FailoverError", "LaggedError"]

EXPIRY = timedelta(minutes=1)  # for clients that die
NOTE_S = 5.0  # between notes of how far we are: what was read need not be kept

READ = (
    "select id, topic, payload, metadata, at, subscription_ids, next_cursor, gone, history, lost_after"
    " from {schema}.read_live_v1(%s, %s, %s, %s)"
)

logger = logging.getLogger(__name__)


class LaggedError(CapacityError, kind=Kind.CAPACITY):
    """A listener was too slow: `lost` events are gone. It may go on listening."""

    def __init__(
        self, message: str, *, remedy: str = "listen faster, or with a larger buffer", where: str = "", lost: int = 0
    ) -> None:
        super().__init__(message, remedy=remedy, where=where)
        self.lost = lost


class FailoverError(StateError, kind=Kind.STATE):
    """The database failed over and lost transactions: events that a listener saw are not in it any more.

    The listener may go on, and gets what the database has instead.
    """


class EventStream(Generic[Payload]):
    """The events of a subscription from now on: `async with` it, and `async for` over it.

    It holds at most `buffer` events. When more come, the oldest go, and the next step of the iteration raises
    `LaggedError`; those after it bring what is left. After a failover that lost events, it raises `FailoverError`
    between the last of the old server and the first of the new one.
    """

    def __init__(self, subscription_id: int, buffer: int, decode: Callable[[Any], Any] | None) -> None:
        self.subscription_id, self.lost = subscription_id, 0
        self._decode = decode
        self._events: deque[Event | FailoverError] = deque(maxlen=buffer)
        self._changed = asyncio.Event()
        self._untold = 0
        self._ended = False

    def push(self, event: Event | FailoverError) -> None:
        """Give it an event, or something to raise; never waits."""
        if len(self._events) == self._events.maxlen:
            self.lost += 1
            self._untold += 1
        self._events.append(event)
        self._changed.set()

    def end(self) -> None:
        """What is in the buffer can still be read; then the iteration ends."""
        self._ended = True
        self._changed.set()

    async def cancel(self) -> None:
        """Listen no more."""
        self.end()
        self._events.clear()

    @property
    def ended(self) -> bool:
        return self._ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[Payload]:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        if self._untold:
            lost, self._untold = self._untold, 0
            raise LaggedError(f"{lost} events came faster than they were taken", lost=lost)
        event = self._events.popleft()
        if isinstance(event, FailoverError):
            raise event
        try:
            check_readable(event.payload, event.metadata)
            if self._decode is None:
                return event
            payload = self._decode(event.payload)
        except DataError as error:
            raise error.at(f"event {event.id}") from None
        return Event(event.id, event.topic, payload, event.metadata, event.at, event.attempt)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()


class Broadcast:
    """The streams of one client, and the loop that fills them."""

    def __init__(self, database: Database, client_id: str, chunk: int) -> None:
        self._database, self._client, self._chunk = database, client_id, chunk
        self.group = f"listeners of {client_id}"
        self.gno: str | None = None
        self._cursor: int | None = None
        self._history: str | None = None  # of the server whose position that is
        # Weakly: a stream that nobody can take events from any more is not kept for its own sake.
        self._streams: dict[int, WeakSet[EventStream[Any]]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._changing = asyncio.Lock()  # who comes must not find what is just being removed
        self._wake = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        self._wake.set()

    async def listen(
        self, subscription: Subscription, buffer: int, decode: Callable[[Any], Any] | None
    ) -> EventStream[Any]:
        if buffer < 1:
            raise UsageError("a buffer holds at least one event", remedy="give a larger one")
        if self._ended:
            raise UsageError("the client has ended", remedy="listen before it does")
        wanted = Subscription(subscription.condition, subscription.params, subscription.expiry or EXPIRY)
        async with self._changing:
            sid = await self._database.subscribe(self.group, wanted, self._client)
            stream: EventStream[Any] = EventStream(sid, buffer, decode)
            self._streams.setdefault(sid, WeakSet()).add(stream)
            self._subscriptions[sid] = wanted
        if self.gno is None:
            self.gno = await self._database.group_number(self.group)
        self._wake.set()
        return stream

    async def subscribe_again(self) -> None:
        """After an absence in which subscriptions may have expired, or a failover that has lost them."""
        async with self._changing:
            numbers: dict[int, int] = {}
            for sid, wanted in self._subscriptions.items():
                numbers[sid] = await self._database.subscribe(self.group, wanted, self._client)
            self._subscriptions = {numbers[sid]: wanted for sid, wanted in self._subscriptions.items()}
            self._streams = {numbers[sid]: streams for sid, streams in self._streams.items()}
            if self._subscriptions:
                self.gno = await self._database.group_number(self.group)

    async def read(self) -> None:
        """Read and pass on; never waits for a listener."""
        noted = asyncio.get_running_loop().time()
        while True:
            self._wake.clear()
            more = bool(self._streams) and await self._read_once()
            now = asyncio.get_running_loop().time()
            if self._streams and now - noted > NOTE_S:
                noted = now
                await self._note()
            if not more:
                await wait(self._wake, LOOK_S if self._database.listening else LOOK_DEAF_S)

    async def leave(self) -> None:
        """End all streams and the subscriptions of this client."""
        self._ended = True
        streams = [stream for found in self._streams.values() for stream in found]
        for stream in streams:
            stream.end()
        for sid in list(self._streams):
            await self._database.fetch("select {schema}.unsubscribe_v1(%s)", sid)
        self._streams.clear()

    async def _read_once(self) -> bool:
        rows = await self._database.fetch(READ, self.group, self._cursor, self._chunk, self._history)
        if not rows:
            return False
        *_, next_cursor, _, self._history, lost_after = rows[0]
        self._cursor = next_cursor
        if lost_after is not None:
            self._tell_failover(lost_after)
            return True
        for event_id, topic, payload, metadata, at, subs, _, gone, _, _ in rows:
            if not gone:
                event = Event(event_id, topic, payload, metadata, at)
                for sid in subs:
                    self._push(sid, event)
        await asyncio.sleep(0)  # listeners first
        return len(rows) >= self._chunk

    def _tell_failover(self, after: int) -> None:
        """Positions behind this one have been given to other events, or will be."""
        text = f"the database failed over and lost what came after position {after}; other events follow"
        logger.error("listeners of this client: %s", text)
        for sid in self._streams:
            remedy = "take what was seen after it for undone, and go on listening"
            self._push(sid, FailoverError(text, remedy=remedy, where=f"subscription {sid}"))

    def _push(self, sid: int, event: Event | FailoverError) -> None:
        for stream in list(self._streams.get(sid, ())):
            if not stream.ended:
                stream.push(event)

    async def _note(self) -> None:
        if self._cursor is not None:
            statement = "select {schema}.note_live_v1(%s, %s, %s)"
            await self._database.fetch(statement, self.group, self._cursor, self._history)
        async with self._changing:
            for sid in [sid for sid, streams in self._streams.items() if all(stream.ended for stream in streams)]:
                await self._database.fetch("select {schema}.unsubscribe_v1(%s)", sid)
                del self._streams[sid], self._subscriptions[sid]
