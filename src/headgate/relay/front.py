"""One port for all: streams go to the fan-out, every other request to the HTTP application.

Who connects is told apart by the first line of the request, and then handed over with all that was read of it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headgate.eventlog.connection import Connection
from headgate.eventlog.fanout import FanOut
from headgate.relay.doors import JETSTREAM, JETSTREAM_ZSTD, SUBSCRIBE_REPOS

__all__ = ["SERVER", "Consumer", "Front", "url_of"]

SERVER = "headgate-relay (atproto-relay)"  # by the second word relays know one another

_STREAMS = (SUBSCRIBE_REPOS, JETSTREAM)
_MOST_LINE_BYTES = 16 << 10
_FIRST_LINE_S = 10.0
_CLOSE_S = 2.0
_MOST_CLIENTS = 4096


@dataclass(frozen=True, slots=True)
class Consumer:
    """Somebody who listens."""

    number: int
    address: str
    path: str
    query: str
    since: float
    connection: Connection

    def disconnect(self) -> None:
        if self.connection.is_open:
            self.connection.end(1001, "disconnected by the operator", _CLOSE_S)


class Front:
    """Listens, looks at the first line, and hands over."""

    def __init__(self, application: Starlette, fanout: FanOut) -> None:
        self.fanout = fanout
        self._config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("Server", SERVER)],
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._visitors: set[_Visitor] = set()
        self._consumers: dict[Connection, Consumer] = {}
        self._count = 0

    async def start(self, listener: socket.socket) -> None:
        self._config.load()
        self._state.default_headers = self._config.encoded_headers
        await self.fanout.start(None)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Visitor(self), sock=listener)

    async def close(self) -> None:
        """Take nobody in any more, say goodbye to listeners, and let answers under way go out."""
        if self._server is not None:
            self._server.close()
        for visitor in list(self._visitors):
            visitor.end()
        await self.fanout.close()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=_CLOSE_S)
        for protocol in list(self._state.connections):
            cast(Any, protocol).transport.close()
        await asyncio.sleep(0)  # connections end with the next turn of the loop

    def consumers(self) -> list[Consumer]:
        """Who listens now, in the order they came."""
        self._consumers = {each: consumer for each, consumer in self._consumers.items() if each.is_open}
        return list(self._consumers.values())

    # For visitors

    def hand_over(self, visitor: _Visitor, line: bytes, data: bytes) -> None:
        """Make the connection one of those who can answer."""
        self._visitors.discard(visitor)
        _, _, rest = line.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if path.decode("latin-1") in _STREAMS:
            self._to_fanout(visitor.transport, path.decode("latin-1"), query.decode("latin-1"), data)
            return
        if len(self._state.connections) >= _MOST_CLIENTS:
            visitor.transport.abort()
            return
        protocol = H11Protocol(self._config, self._state, {}, asyncio.get_running_loop())
        _hand_over(visitor.transport, protocol, data)

    def _to_fanout(self, transport: asyncio.Transport, path: str, query: str, data: bytes) -> None:
        if path == JETSTREAM and "true" in parse_qs(query[:_MOST_LINE_BYTES]).get("compress", ()):
            data = data.replace(JETSTREAM.encode(), JETSTREAM_ZSTD.encode(), 1)
        connection = Connection(self.fanout)
        self._count += 1
        peer = transport.get_extra_info("peername") or ("", 0)
        address = f"{peer[0]}:{peer[1]}"
        if len(self._consumers) > self.fanout.options.connections:
            self.consumers()
        self._consumers[connection] = Consumer(self._count, address, path, query[:500], time.time(), connection)
        _hand_over(transport, connection, data)

    def came(self, visitor: _Visitor) -> None:
        self._visitors.add(visitor)
        if len(self._visitors) > _MOST_CLIENTS:
            visitor.end()

    def left(self, visitor: _Visitor) -> None:
        self._visitors.discard(visitor)


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _hand_over(transport: asyncio.Transport, protocol: asyncio.Protocol, data: bytes) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    protocol.data_received(data)


class _Visitor(asyncio.Protocol):
    """A connection whose first line is not yet known."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._data = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(_FIRST_LINE_S, self.end)
        self._front.came(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        line, end, _ = self._data.partition(b"\r\n")
        if end:
            self._forget_timer()
            self._front.hand_over(self, bytes(line), bytes(self._data))
        elif len(self._data) > _MOST_LINE_BYTES:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._forget_timer()
        self._front.left(self)

    def end(self) -> None:
        self.transport.abort()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
