"""One port for all: streams go to the fan-out, every other request to the HTTP application.

Every request of a connection is looked at: a proxy that keeps connections open sends ordinary requests and those of
consumers through the same one. Each phase of a request has its time, and an address no more than its share of
connections.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headgate.eventlog.connection import Connection
from headgate.eventlog.fanout import FanOut
from headgate.relay.doors import JETSTREAM, JETSTREAM_ZSTD, SUBSCRIBE_REPOS

__all__ = ["SERVER", "Consumer", "Front", "FrontOptions", "url_of"]

SERVER = "headgate-relay (atproto-relay)"  # by the second word relays know one another

_STREAMS = (SUBSCRIBE_REPOS, JETSTREAM)
_MOST_HEAD_BYTES = 16 << 10
_CLOSE_S = 2.0

_log = logging.getLogger(f"{__name__}.http")
_log.setLevel(logging.ERROR)  # what strangers send is no news


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """How long each phase of a request may take, in seconds, and how many connections there may be."""

    head_s: float = 10.0  # from the connection, or the first byte of a further request, to the end of its head
    body_s: float = 20.0
    answer_s: float = 120.0  # until the application has answered
    write_s: float = 30.0  # without the client taking a byte of the answer
    idle_s: float = 75.0  # between requests; longer than proxies keep connections that they do not use
    connections: int = 4096
    per_address: int = 128  # of one address, but not of a proxy


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
    """Listens, and gives each request to whoever can answer it."""

    def __init__(self, application: Starlette, fanout: FanOut, options: FrontOptions | None = None) -> None:
        self.fanout = fanout
        self.options = options or FrontOptions()
        self.config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("Server", SERVER)],
            timeout_keep_alive=int(self.options.idle_s),
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        )
        self.state = ServerState()
        self._server: asyncio.Server | None = None
        self._clients: dict[_Client, str] = {}  # with their address; the oldest first
        self._addresses: Counter[str] = Counter()
        self._consumers: dict[Connection, Consumer] = {}
        self._count = 0
        self.refused = 0
        self.timed_out: Counter[str] = Counter()

    async def start(self, listener: socket.socket) -> None:
        self.config.load()
        self.state.default_headers = self.config.encoded_headers
        await self.fanout.start(None)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), sock=listener)

    async def close(self) -> None:
        """Take nobody in any more, say goodbye to listeners, and let answers under way go out."""
        if self._server is not None:
            self._server.close()
        await self.fanout.close()
        if self.state.tasks:
            await asyncio.wait(list(self.state.tasks), timeout=_CLOSE_S)
        for client in list(self._clients):
            client.transport.abort()
        await asyncio.sleep(0)  # connections end with the next turn of the loop

    def consumers(self) -> list[Consumer]:
        """Return the consumers that listen now, in the order they came."""
        self._consumers = {each: consumer for each, consumer in self._consumers.items() if each.is_open}
        return list(self._consumers.values())

    def stats(self) -> dict[str, int]:
        return {"connections": len(self._clients), "refused": self.refused, "timed_out": self.timed_out.total()}

    def listeners(self) -> dict[str, int]:
        """Return the counts of the fan-out and of HTTP connections, by the names that their metrics have."""
        return self.fanout.stats() | {f"http_{name}": count for name, count in self.stats().items()}

    # For clients

    def came(self, client: _Client) -> bool:
        """Count a connection. False if it is one too many of its address, or of all while none of them is idle."""
        address = str((client.transport.get_extra_info("peername") or ("",))[0])
        has_share = self.fanout.is_proxy(address) or self._addresses[address] < self.options.per_address
        if not has_share or not (len(self._clients) < self.options.connections or self._evict()):
            self.refused += 1
            return False
        self._clients[client] = address
        self._addresses[address] += 1
        return True

    def knows(self, client: _Client) -> bool:
        return client in self._clients

    def left(self, client: _Client) -> None:
        address = self._clients.pop(client, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def _evict(self) -> bool:
        """End the connection that has asked for nothing for longest: whoever only holds places loses them first."""
        for client in self._clients:
            if client.phase in (_Phase.HEAD, _Phase.IDLE):
                self.left(client)
                client.transport.abort()
                return True
        return False

    def to_fanout(self, client: _Client, request: h11.Request) -> None:
        """Make the connection that of a consumer."""
        path, _, query = request.target.decode("latin-1").partition("?")
        target = _zstd(path, query, client.headers) + (f"?{query}" if query else "")
        connection = Connection(self.fanout)
        address = self.fanout.address_of(client.transport, _forwarded(client.headers))
        self._count += 1
        if len(self._consumers) > self.fanout.options.connections:
            self.consumers()
        self._consumers[connection] = Consumer(self._count, address, path, query[:500], time.time(), connection)
        head = [b"%b %b HTTP/1.1" % (request.method, target.encode("latin-1"))]
        head += [b"%b: %b" % (name, value) for name, value in client.headers]
        client.transport.set_protocol(connection)
        connection.connection_made(client.transport)
        connection.data_received(b"\r\n".join([*head, b"", b""]))


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _forwarded(headers: list[tuple[bytes, bytes]]) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]


def _zstd(path: str, query: str, headers: list[tuple[bytes, bytes]]) -> str:
    """Jetstream's consumers ask for compression in the query or with a header."""
    if path != JETSTREAM:
        return path
    asked = any(name == b"socket-encoding" and b"zstd" in value.lower() for name, value in headers)
    return JETSTREAM_ZSTD if asked or "true" in parse_qs(query).get("compress", ()) else path


class _Phase(enum.StrEnum):
    """Where a connection is. Each phase has its time."""

    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    WRITE = "write"
    IDLE = "idle"


class _Client(H11Protocol):
    """A connection of HTTP, until one of its requests is for a stream."""

    def __init__(self, front: Front) -> None:
        super().__init__(front.config, front.state, {}, asyncio.get_running_loop())
        self.logger = _log
        self.phase = _Phase.HEAD
        self._front = front
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if self._front.came(self):
            self._begin(_Phase.HEAD)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        super().connection_lost(error)

    def _should_upgrade(self) -> bool:
        """Whatever is asked of a stream's path is for the fan-out, which also knows what to say to wrong questions."""
        return self.scope["raw_path"].decode("latin-1") in _STREAMS

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.connections.discard(self)
        self._leave()
        self._front.to_fanout(self, event)

    # Phases

    def _look(self) -> None:
        phase = self._phase_now()
        if phase is not self.phase and self._front.knows(self):
            self._begin(phase)

    def _phase_now(self) -> _Phase:
        cycle: Any = self.cycle
        if self.flow.write_paused or self.transport.is_closing():
            return _Phase.WRITE
        if cycle is None:
            return _Phase.HEAD
        if not cycle.response_complete:
            return _Phase.BODY if cycle.more_body else _Phase.ANSWER
        return _Phase.HEAD if self.conn.trailing_data[0] else _Phase.IDLE

    def _begin(self, phase: _Phase) -> None:
        """The time of a phase begins. That of an idle connection is the HTTP library's."""
        self.phase = phase
        self._forget_timer()
        if phase is not _Phase.IDLE:
            limit_s = getattr(self._front.options, f"{phase.value}_s")
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._time_out)

    def _time_out(self) -> None:
        self._front.timed_out[self.phase.value] += 1
        self.transport.abort()

    def _leave(self) -> None:
        self._forget_timer()
        self._front.left(self)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
