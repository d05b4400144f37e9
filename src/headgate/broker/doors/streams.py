"""Streams of topics in this process: one subscription and one reader, however many listen."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headgate.broker.database import persist
from headgate.broker.doors.database import DoorDatabase
from headgate.broker.doors.options import StreamLimits
from headgate.model.ending import run_until

__all__ = ["Frame", "Listener", "Room", "gap_frame"]

_CHUNK = 500
_LOOK_S = 2.0  # notifications get lost with a connection


@dataclass(frozen=True, slots=True)
class Frame:
    """Something for a listener, and the position that it has come to with it."""

    pos: int
    data: bytes


def event_frame(pos: int, topic: str, payload: str) -> Frame:
    """JSON from the database has no line breaks; a topic may have."""
    name = topic.replace("\r", " ").replace("\n", " ")
    return Frame(pos, f"id: {pos}\nevent: {name}\ndata: {payload}\n\n".encode())


def gap_frame(after: int, pos: int) -> Frame:
    return Frame(pos, f'id: {pos}\nevent: headgate.gap\ndata: {{"from": {after}, "to": {pos}}}\n\n'.encode())


class Listener:
    """What one connection has still to be sent; not more than it may hold."""

    def __init__(self, cursor: int, limits: StreamLimits) -> None:
        self.cursor = cursor  # all up to here has been offered
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


class Room:
    """The stream of some topics, with all who listen to it here."""

    def __init__(self, database: DoorDatabase, topics: Sequence[str], limits: StreamLimits) -> None:
        self._database = database
        self._topics = list(topics)
        self._limits = limits
        self._wake = asyncio.Event()
        self._listeners: set[Listener] = set()
        self._group = ""
        self._born: int | None = None
        self.cursor = 0  # all up to here has been read
        self.users = 0

    async def open(self) -> None:
        """Subscribe, or say that the subscription is still in use."""
        [(self._group, number, born, last)] = await self._database.fetch(
            "select group_id, gno, born_pos, last_pos from open_stream_v1(%s, %s)",
            self._topics,
            timedelta(seconds=self._limits.expiry_s),
        )
        if self._born is None:
            self.cursor = last
            self._database.wake(self._wake, number)
        elif self._born != born:  # it had expired: nobody knows what would have matched
            self.end(gap_frame(self.cursor, born).data)
            self.cursor = born
        self._born = born

    async def run(self) -> None:
        """Read for all listeners, until cancelled."""
        try:
            await run_until(
                asyncio.Event(), persist(self._follow, whatever=True), persist(self._stay_open, whatever=True)
            )
        finally:
            self._database.forget(self._wake)

    async def position_for(self, after: int) -> int:
        """Where a listener can go on that has come to a position; another one if something is gone."""
        [(pos,)] = await self._database.fetch("select resume_stream_v1(%s, %s)", self._group, after)
        return int(pos)

    async def catch_up(self, listener: Listener) -> AsyncIterator[Frame]:
        """What the listener has missed; after the last of it, the listener is one of this room's."""
        while listener.cursor < self.cursor:
            goal = self.cursor
            frames = await self._read(listener.cursor)
            for frame in frames:
                listener.cursor = frame.pos
                if frame.data:
                    yield frame
            if not frames:
                listener.cursor = goal
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def end(self, last_words: bytes) -> None:
        for listener in self._listeners:
            listener.end(last_words)

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            frames = await self._read(self.cursor)
            self._spread(frames)
            if len(frames) < _CHUNK:
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
                await self._database.fetch("select set_group_cursor_v1(%s, %s, false, null, null)", self._group, stored)

    async def _read(self, after: int) -> list[Frame]:
        rows = await self._database.fetch(
            "select pos, topic, payload, gap_from from read_stream_v1(%s, %s, %s)", self._group, after, _CHUNK
        )
        return [_frame(after, *row) for row in rows]

    def _spread(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.cursor = max(self.cursor, frame.pos)
            if frame.data:
                for listener in self._listeners:
                    listener.offer(frame)


def _frame(after: int, pos: int, topic: str | None, payload: str, gap_from: int | None) -> Frame:
    if gap_from is not None:
        return gap_frame(max(after, gap_from - 1), pos)
    return Frame(pos, b"") if topic is None else event_frame(pos, topic, payload)
