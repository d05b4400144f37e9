"""One connection of a listener: the request, WebSocket's small talk, and a way to write that cannot grow for ever.

The `websockets` library reads what clients send: the handshake, pings, closes. Events pass it by, as buffers that all
listeners share. A connection that does not take what was written is paused, by the loop's own limits, and is not read
from either until it goes on: a client that only asks cannot fill our memory with answers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Event
from websockets.server import ServerProtocol

from headgate.eventlog.doors import Door, Entrance, Framing

__all__ = ["Connection", "ConnectionOwner"]

_MOST_REQUEST_BYTES = 16 << 10
_MOST_MESSAGE_BYTES = 16 << 10  # of a client, whose messages nobody reads
_END_OF_HEAD = b"\r\n\r\n"
_POLICY = 1008

_log = logging.getLogger(f"{__name__}.websocket")
_log.setLevel(logging.WARNING)


class ConnectionOwner(Protocol):
    """What a connection tells the server that it belongs to."""

    def came(self, connection: Connection) -> None: ...

    def asked(self, connection: Connection, request: Request) -> None: ...

    def paused(self, connection: Connection) -> None: ...

    def resumed(self, connection: Connection) -> None: ...

    def left(self, connection: Connection) -> None: ...

    def gone(self, connection: Connection) -> None: ...

    def heard(self, connection: Connection, message: bytes) -> None: ...


class Connection(asyncio.Protocol):
    """From the first byte to the last. `is_open`: events may be written."""

    __slots__ = (
        "_freed",
        "_ignored",
        "_owner",
        "_parts",
        "_protocol",
        "_request",
        "_timer",
        "address",
        "after",
        "door",
        "entrance",
        "framing",
        "heard",
        "is_open",
        "is_paused",
        "listens",
        "moved_at",
        "next_wanted",
        "transport",
        "updates",
        "waiting_bytes",
        "wanted",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._request: bytearray | None = bytearray()
        self._protocol: ServerProtocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._freed: asyncio.Future[None] | None = None
        self._ignored = 0
        self.is_open = False
        self.is_paused = False
        self.heard = True
        self.waiting_bytes = 0  # at the last look, and when it last was less
        self.moved_at = 0.0
        self.after = 0  # while it catches up: the last number it was sent
        self.wanted: object = None
        self.address = ""  # once it is in
        self.listens = False
        self.updates = 0  # of what it wants, since the last look
        self.next_wanted: list[object] = []  # what it wants once it has taken what waits for it
        self.entrance: Entrance | None = None  # while it has not said yet what it wants
        self._parts = bytearray()
        self.door: Door
        self.framing: Framing
        self.transport: asyncio.Transport

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._owner.came(self)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._request is not None:
            self._read_request(data)
        elif self._protocol is not None:
            self._protocol.receive_data(data)
            said = self._protocol.events_received()
            self._flush(self._protocol)
            if self.listens:
                self._listen(said)
        else:
            self._ignored += len(data)
            if self._ignored > _MOST_MESSAGE_BYTES:
                self.transport.abort()

    def pause_writing(self) -> None:
        self.is_paused = True
        if not self.transport.is_closing():
            self.transport.pause_reading()
        self._owner.paused(self)

    def resume_writing(self) -> None:
        self.is_paused = False
        if not self.transport.is_closing():
            self.transport.resume_reading()
        if self._freed and not self._freed.done():
            self._freed.set_result(None)
        self._owner.resumed(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self.expect_end(None)
        if self._freed and not self._freed.done():
            self._freed.set_result(None)
        self._owner.gone(self)

    @property
    def is_asking(self) -> bool:
        """Whether its request has not come yet, or not all of it."""
        return self._request is not None

    # What the server calls

    def expect_end(self, within_s: float | None) -> None:
        """Cut the connection after this time; None lets it live."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        if within_s is not None:
            self._timer = asyncio.get_running_loop().call_later(within_s, self.transport.abort)

    def upgrade(self, request: Request) -> bool:
        """Answer the handshake of WebSocket; False if it was refused."""
        assert self._protocol is not None
        response = self._protocol.accept(request)
        self._protocol.send_response(response)
        self._flush(self._protocol)
        self.is_open = response.status_code == 101
        return self.is_open

    def stream(self) -> None:
        """Answer with a stream that has no end."""
        self._protocol = None
        self.is_open = True
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n"
            b"X-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
        )

    def answer(self, status: int, text: str) -> None:
        """Answer and close."""
        protocol = self._protocol or ServerProtocol(logger=_log)
        response = protocol.reject(status, f"{text}\n")
        if status in (429, 503):
            response.headers["Retry-After"] = "5"
        self._request = self._protocol = None
        self.transport.write(response.serialize())
        self.transport.close()

    async def writable(self) -> None:
        """Wait until the connection takes more, or has ended."""
        if self.is_paused and self.is_open:
            self._freed = asyncio.get_running_loop().create_future()
            await self._freed

    def inform(self, name: str, message: str) -> None:
        """Say something between the events, if the door has words for it."""
        if self.is_open and (said := self.door.info(name, message)):
            self.transport.write(self.framing.note(said))

    def refuse(self, name: str, message: str, within_s: float) -> None:
        """Say what is wrong in the words of the door, and close."""
        if not self.is_open:
            return
        if said := self.door.error(name, message):
            self.transport.write(self.framing.note(said))
        self.end(_POLICY, name, within_s)

    def end(self, code: int, reason: str, within_s: float) -> None:
        """Close in order, or, if the other side does not play its part, without."""
        if not self.is_open:
            return
        self._leave()
        self.expect_end(within_s)
        if self._protocol is None:
            self.transport.close()
            return
        self._protocol.send_close(code, reason)
        self._flush(self._protocol)
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def listen(self, most_bytes: int) -> None:
        """Read the messages of the client, and give them to the server."""
        assert self._protocol is not None
        self.listens = True
        self._protocol.max_message_size = most_bytes

    # The rest

    def _listen(self, said: list[Event]) -> None:
        """Put text together from its fragments. Their number is bounded by their bytes, each counted with its cost."""
        for frame in said:
            if not isinstance(frame, Frame) or frame.opcode not in (Opcode.TEXT, Opcode.CONT):
                continue
            self._parts += frame.data
            if frame.fin:
                message, self._parts = bytes(self._parts), bytearray()
                if self.is_open:
                    self._owner.heard(self, message)

    def _leave(self) -> None:
        if self.is_open:
            self.is_open = False
            self._owner.left(self)

    def _read_request(self, data: bytes) -> None:
        assert self._request is not None
        self._request += data
        end = self._request.find(_END_OF_HEAD)
        if end < 0:
            if len(self._request) > _MOST_REQUEST_BYTES:
                self.answer(431, "the request is too long")
            return
        end += len(_END_OF_HEAD)
        head, rest = bytes(self._request[:end]), bytes(self._request[end:])
        self._request = None
        self._protocol = ServerProtocol(max_size=_MOST_MESSAGE_BYTES, logger=_log)
        self._protocol.receive_data(head)
        match self._protocol.events_received():
            case [Request() as request]:
                self._owner.asked(self, request)
            case _:
                self.answer(400, "this is no request")
        if rest and self.is_open:
            self.data_received(rest)

    def _flush(self, protocol: ServerProtocol) -> None:
        for data in protocol.data_to_send():
            if data:
                self.transport.write(data)
            else:
                self._leave()
                self.transport.close()
