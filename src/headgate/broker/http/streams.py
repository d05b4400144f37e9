"""Streams of topics in this process: one subscription and one reader, however many listen."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headgate.broker.database import persist
from headgate.broker.http.database import ServerDatabase
from headgate.broker.http.options import StreamLimits
from headgate.runtime.ending import run_until

__all__ = ["Frame", "Listener", "Place", "Room", "failover_frame", "gap_frame"]

_CHUNK = 500
_LOOK_S = 2.0  # notifications get lost with a connection


@dataclass(frozen=True, slots=True)
class Frame:
    """Something for a listener, and the position that it has come to with it."""

    pos: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """A position, and the past of the server that gave it: after a failover, it may be another event's."""

    pos: int
    history: str | None = None

    def __str__(self) -> str:
        return str(self.pos) if self.history is None else f"{self.pos}-{self.history}"


def event_frame(place: Place, topic: str, payload: str) -> Frame:
    """JSON from the database has no line breaks; a topic may have."""
    name = topic.replace("\r", " ").replace("\n", " ")
    return Frame(place.pos, f"id: {place}\nevent: {name}\ndata: {payload}\n\n".encode())


def gap_frame(after: int, to: Place) -> Frame:
    data = f'{{"from": {after}, "to": {to.pos}}}'
    return Frame(to.pos, f"id: {to}\nevent: headgate.gap\ndata: {data}\n\n".encode())


def failover_frame(after: Place) -> Frame:
    """What was heard behind this place is not in the database any more."""
    data = f'{{"after": {after.pos}}}'
    return Frame(after.pos, f"id: {after}\nevent: headgate.failover\ndata: {data}\n\n".encode())


class Listener:
    """What one connection has still to be sent; not more than it may hold."""

    def __init__(self, place: Place, limits: StreamLimits) -> None:
        self.cursor, self.history = place.pos, place.history  # all up to here has been offered
        self._limits = limits
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        self.last_words: bytes | None = None  # after what is left, this and the end

    def offer(self, frame: Frame) -> None:
        if frame.pos <= self.cursor or self.last_words is not None:
            return
        self._bytes += len(frame.data)
        if len(self._frames) >= self._limits.buffer_events or self._bytes > self._limits.buffer_bytes:
            self._frames.clear()  # it asks again, from the last that it has got
            self.end(b'event: headgate.slow\ndata: {"error": "too slow; connect again to go on"}\n\n')
            return
        self.cursor = frame.pos
        self._frames.append(frame)
        self._ready.set()

    def end(self, last_words: bytes) -> None:
        """The first words count: who was told to come again is told of a failover when it does, and not here, too."""
        if self.last_words is None:
            self.last_words = last_words
        self._ready.set()

    async def take(self, timeout_s: float) -> bytes:
        """All that waits; nothing after the time, or at the end."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            pass  # something may have come in this very moment
        data = b"".join(frame.data for frame in self._frames)
        self._frames.clear()
        self._bytes = 0
        if self.last_words is None:
            self._ready.clear()
        return data


@dataclass(frozen=True, slots=True)
class _Reading:
    """What came after a place, and the place behind it; `lost`: the pasts part there, and more had been heard."""

    frames: Sequence[Frame]
    place: Place
    lost: bool = False


class Room:
    """The stream of some topics, with all who listen to it here."""

    def __init__(self, database: ServerDatabase, topics: Sequence[str], limits: StreamLimits) -> None:
        self._database = database
        self._topics = list(topics)
        self._limits = limits
        self._wake = asyncio.Event()
        self._listeners: set[Listener] = set()
        self._group = ""
        self._born: int | None = None
        self._history: str | None = None
        self.cursor = 0  # all up to here has been read
        self.users = 0

    async def open(self) -> None:
        """Subscribe, or say that the subscription is still in use."""
        [(self._group, number, born, last, history)] = await self._database.fetch(
            "select group_id, gno, born_pos, last_pos, {schema}.server_history() from {schema}.open_stream_v1(%s, %s)",
            self._topics,
            timedelta(seconds=self._limits.expiry_s),
        )
        self._database.wake(self._wake, number)
        if self._born is None:
            self.cursor, self._history = last, history
        elif self._born != born:  # it had expired, or was lost: nobody knows what would have matched
            self.end(gap_frame(self.cursor, Place(born, history)).data)
            self.cursor, self._history = born, history
        self._born = born

    async def run(self) -> None:
        """Read for all listeners, until cancelled."""
        try:
            await run_until(
                asyncio.Event(), persist(self._follow, whatever=True), persist(self._stay_open, whatever=True)
            )
        finally:
            self._database.forget(self._wake)

    @property
    def place(self) -> Place:
        """All up to here has been read."""
        return Place(self.cursor, self._history)

    async def place_for(self, after: Place) -> tuple[Place, bool]:
        """Where a listener can go on that has come to a place, and whether a failover lost what it heard behind that.

        Any other position than its own: something is gone.
        """
        statement = "select pos, history, lost from {schema}.resume_stream_v2(%s, %s, %s)"
        [(pos, history, lost)] = await self._database.fetch(statement, self._group, after.pos, after.history)
        return Place(pos, history), lost

    async def catch_up(self, listener: Listener) -> AsyncIterator[Frame]:
        """What the listener has missed; after the last of it, the listener is one of this room's."""
        while listener.cursor < self.cursor and listener.history == self._history:
            goal = self.cursor
            reading = await self._read(Place(listener.cursor, listener.history))
            if reading.place.history != listener.history or reading.lost:
                break
            for frame in reading.frames:
                listener.cursor = frame.pos
                if frame.data:
                    yield frame
            if not reading.frames:
                listener.cursor = goal
        if listener.history != self._history or listener.cursor < self.cursor:
            # One of us has heard of a failover, and the other has not. It asks again, from the last that it has got.
            listener.end(b": come again\n\n")
            self._wake.set()
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def end(self, last_words: bytes) -> None:
        for listener in self._listeners:
            listener.end(last_words)

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            asked = self.place
            reading = await self._read(asked)
            if asked == self.place:  # it may have been opened anew in the meantime
                self._spread(reading)
            if len(reading.frames) < _CHUNK and not reading.lost:
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _stay_open(self) -> None:
        stored = self.cursor
        while True:
            await asyncio.sleep(self._limits.expiry_s / 10)
            await self.open()
            if self.cursor > stored:
                stored = self.cursor
                # Nobody holds a lease on a stream. This lets the log go of what is read and old.
                statement = "select {schema}.note_live_v1(%s, %s, %s)"
                await self._database.fetch(statement, self._group, stored, self._history)

    async def _read(self, after: Place) -> _Reading:
        rows = await self._database.fetch(
            "select pos, topic, payload, gap_from, history, lost_after from {schema}.read_stream_v2(%s, %s, %s, %s)",
            self._group,
            after.pos,
            _CHUNK,
            after.history,
        )
        if not rows:
            return _Reading([], after)
        last = Place(rows[-1][0], rows[-1][4])
        if rows[0][5] is not None:
            return _Reading([], last, lost=True)
        return _Reading([_frame(after.pos, Place(pos, past), *rest) for pos, *rest, past, _ in rows], last)

    def _spread(self, reading: _Reading) -> None:
        self.cursor, self._history = reading.place.pos, reading.place.history
        if reading.lost:  # listeners come again from where the pasts part, and so do we
            self.end(failover_frame(reading.place).data)
        for frame in reading.frames:
            if frame.data:
                for listener in self._listeners:
                    listener.offer(frame)


def _frame(after: int, place: Place, topic: str | None, payload: str, gap_from: int | None) -> Frame:
    if gap_from is not None:
        return gap_frame(max(after, gap_from - 1), place)
    return Frame(place.pos, b"") if topic is None else event_frame(place, topic, payload)
