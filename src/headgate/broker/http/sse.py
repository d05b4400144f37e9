"""Events over HTTP as they come (server-sent events): `GET /events?topic=a&topic=b`.

    id: 17-9f3a5c70d2b1             the place, by which a listener goes on: Last-Event-ID
    event: user.created             the topic
    data: {"name": "ann"}           the payload

Also: `headgate.gap` if positions that were asked for are gone, `headgate.failover` if the database has lost what was
heard behind a place, and `headgate.slow` before a listener is cut off that does not keep up. All of them leave the
place where the next connection goes on.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import psycopg
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headgate.broker.http.database import ServerDatabase
from headgate.broker.http.options import StreamLimits
from headgate.broker.http.streams import Listener, Place, Room, failover_frame, gap_frame
from headgate.runtime.ending import end

__all__ = ["EventDoor", "problem"]

logger = logging.getLogger(__name__)

_PLACE = re.compile(r"([0-9]{1,18})(?:-([0-9a-f]{12}))?")  # those before version 0.3 had no past
_TOPIC = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_OWN = "headgate."  # names of our own events
_GOODBYE = b": the server stops\n\n"


def problem(status: int, title: str, remedy: str, **headers: str) -> Response:
    """RFC 9457, as the control plane answers."""
    body = {"status": status, "title": title, "remedy": remedy}
    return JSONResponse(body, status_code=status, media_type="application/problem+json", headers=headers)


class EventDoor:
    """An ASGI application. Listeners of the same topics share a room."""

    def __init__(self, database: ServerDatabase, limits: StreamLimits) -> None:
        self._database = database
        self._limits = limits
        self._rooms: dict[tuple[str, ...], Room] = {}
        self._opened: dict[Room, asyncio.Task[None]] = {}
        self._running: dict[Room, asyncio.Task[None]] = {}
        self._closing = False
        self.connections = 0

    @property
    def rooms(self) -> int:
        return len(self._rooms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        topics = tuple(sorted(set(request.query_params.getlist("topic"))))
        refusal = self._refusal(request, topics)
        if refusal is not None:
            return await refusal(scope, receive, send)
        self.connections += 1
        room: Room | None = None
        try:
            room = await self._enter(topics)
            await self._serve(room, _place_of(request), receive, send)
        except psycopg.Error:
            if room is None:  # afterwards it is too late to say so
                answer = problem(503, "the database does not answer", "try again", **{"retry-after": "1"})
                await answer(scope, receive, send)
        finally:
            self.connections -= 1
            if room is not None:
                self._leave(topics, room)

    def close(self) -> None:
        """End all streams; their listeners may go on elsewhere."""
        self._closing = True
        for room in self._rooms.values():
            room.end(_GOODBYE)

    def _refusal(self, request: Request, topics: tuple[str, ...]) -> Response | None:
        if set(request.query_params) - {"topic", "ticket"}:
            return problem(400, "only topics can be asked for", "GET /events?topic=a&topic=b")
        if not topics or len(topics) > self._limits.topics:
            return problem(400, f"ask for 1 to {self._limits.topics} topics", "GET /events?topic=a&topic=b")
        if not all(_TOPIC.fullmatch(topic) and not topic.startswith(_OWN) for topic in topics):
            remedy = f"at most 255 characters on one line, and not beginning with {_OWN}"
            return problem(400, "this cannot be a topic here", remedy)
        given = request.headers.get("last-event-id", "")
        if given and not _PLACE.fullmatch(given):
            return problem(400, "Last-Event-ID is no position", "send the id of an event from here, or none")
        if self._closing or self.connections >= self._limits.connections:
            return problem(503, "there are too many listeners", "try again later", **{"retry-after": "5"})
        return None

    async def _enter(self, topics: tuple[str, ...]) -> Room:
        room = self._rooms.get(topics)
        if room is None:
            room = self._rooms[topics] = Room(self._database, topics, self._limits)
            self._opened[room] = asyncio.create_task(room.open())
        room.users += 1
        try:
            await asyncio.shield(self._opened[room])
        except BaseException:
            self._leave(topics, room)
            raise
        if room not in self._running:
            task = self._running[room] = asyncio.create_task(room.run(), name=f"stream of {len(topics)} topics")
            task.add_done_callback(lambda _: room.end(_GOODBYE))
        return room

    def _leave(self, topics: tuple[str, ...], room: Room) -> None:
        room.users -= 1
        if not room.users:
            del self._rooms[topics]
            self._opened.pop(room).cancel()
            if task := self._running.pop(room, None):
                task.cancel()

    async def _serve(self, room: Room, after: Place | None, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames(room, after)) as frames:
            sending = asyncio.create_task(self._send(frames, send))
            gone = asyncio.create_task(_until_gone(receive))
            try:
                await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end(sending, gone)

    async def _send(self, frames: AsyncGenerator[bytes], send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for data in frames:
                async with asyncio.timeout(self._limits.stall_s):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except psycopg.Error as error:
            # The listener comes again, and to most of them only a clean end says so.
            logger.warning("a stream ends, because the database does not answer: %s", type(error).__name__)
        await send({"type": "http.response.body", "body": b""})

    async def _frames(self, room: Room, after: Place | None) -> AsyncGenerator[bytes]:
        start, lost = (room.place, False) if after is None else await room.place_for(after)
        # An id alone is no event, but a listener remembers it.
        yield f"retry: {self._limits.retry_ms}\nid: {start}\n\n".encode()
        if lost and after is not None and after.history is not None:
            yield failover_frame(start).data
        elif after is not None and start.pos != after.pos:
            yield gap_frame(after.pos, start).data
        listener = Listener(start, self._limits)
        try:
            async for frame in room.catch_up(listener):
                yield frame.data
                if self._closing:
                    return
            while not self._closing or listener.last_words:
                if data := await listener.take(self._limits.heartbeat_s):
                    yield data
                elif listener.last_words is not None:
                    yield listener.last_words
                    return
                else:
                    yield f": still here\nid: {room.place}\n\n".encode()
        finally:
            room.leave(listener)


def _place_of(request: Request) -> Place | None:
    """Where a listener was, as it was found to be well-formed."""
    found = _PLACE.fullmatch(request.headers.get("last-event-id", ""))
    return Place(int(found[1]), found[2]) if found else None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
