"""Serves a log to many listeners: over WebSocket and as server-sent events, through any number of doors.

Every tick reads what is new once, frames it once for each door, and writes one buffer to each listener. Who comes with
a cursor is first fed from memory or from the disk, as fast as the connection takes it, and joins the others exactly
where they are. Who does not keep up is told so and cut off; nobody else waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import parse_qs

from websockets.http11 import Request

from headgate.eventlog.connection import Connection
from headgate.eventlog.doors import SSE, Door, Entrance, Framing, ListeningDoor, Message, Refusal, WebSocketFraming
from headgate.eventlog.groups import Group, framed
from headgate.eventlog.reader import LogReader
from headgate.eventlog.records import Record
from headgate.eventlog.replay import LostError, replay
from headgate.eventlog.tail import Tail
from headgate.model import HeadgateError
from headgate.runtime.access import has_token, is_foreign_host, is_foreign_origin
from headgate.runtime.ending import end

__all__ = ["FanOut", "FanOutOptions"]

_log = logging.getLogger(__name__)

_MOST_FIELDS = 2000
_GOING_AWAY, _INTERNAL = 1001, 1011
_PING = b"\x89\x00"
_STILL_HERE = b": still here\n\n"
_SWEEP_S = 1.0
_MOST_UPDATES = 10  # of what a listener wants, in a second


@dataclass(frozen=True, slots=True)
class FanOutOptions:
    """Limits of a server. Sizes are bytes."""

    tick_s: float = 0.01
    chunk: int = 256 << 10  # read and written at a time
    write: int = 1 << 20  # may wait in a connection; the next chunk is not written before there is less
    buffer: int = 16 << 20  # may wait for a listener who was live; beyond it is ConsumerTooSlow
    ring: int = 32 << 20  # of recent records in memory
    connections: int = 1000
    per_address: int = 0  # of them, from one address; 0: as many as there are
    proxies: tuple[str, ...] = ("127.0.0.0/8", "::1/128")  # whose X-Forwarded-For is believed
    replays: int = 4  # that read the disk at the same time
    stall_s: float = 30.0  # without a byte taken, anyone is too slow
    ping_s: float = 30.0
    handshake_s: float = 10.0
    hello_s: float = 60.0  # until a listener has said what it wants, if it said that it would
    close_s: float = 5.0
    any_origin: bool = False  # whether pages of other sites may listen, when there is no token
    token: str | None = field(default=None, repr=False)


class FanOut:
    """A server for one log, on one loop."""

    def __init__(
        self,
        reader: LogReader,
        doors: Mapping[str, Door],
        streams: Mapping[str, Door] | None = None,
        options: FanOutOptions | None = None,
    ) -> None:
        """`doors` are paths for WebSocket, `streams` those for server-sent events."""
        self.options = options or FanOutOptions()
        self.tail = Tail(reader, self.options.ring)
        self._doors = dict(doors)
        self._streams = dict(streams or {})
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._groups: dict[tuple[Door, Framing, Any], Group] = {}
        self._group_of: dict[Connection, Group] = {}
        self._catching_up: dict[Connection, asyncio.Task[None]] = {}
        self._pool = ThreadPoolExecutor(self.options.replays, thread_name_prefix="replay")
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._pinged_at = time.monotonic()
        self._empty = asyncio.Event()
        self._empty.set()
        self._proxies = [ip_network(proxy) for proxy in self.options.proxies]
        self._addresses: Counter[str] = Counter()  # of those who are in, each counted
        self.too_slow = 0  # listeners that were cut off
        self.refused = 0
        self.damaged = 0  # places of the log that could not be read while it was followed

    async def start(self, listener: socket.socket | None, tls: ssl.SSLContext | None = None) -> None:
        """Serve on a socket that listens already; with None, whoever listens makes each a `Connection` of this."""
        loop = asyncio.get_running_loop()
        if listener is not None:
            self._server = await loop.create_server(lambda: Connection(self), sock=listener, ssl=tls)
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._sweep())]

    async def close(self) -> None:
        """Say goodbye to everybody, and give each a moment to hear it."""
        if self._server:
            self._server.close()
        await end(*self._tasks)
        for connection in list(self._connections):
            if connection.is_open:
                connection.end(_GOING_AWAY, "going away", self.options.close_s)
            else:
                connection.transport.abort()
        await self._empty.wait()
        await asyncio.gather(*self._catching_up.values())
        self._pool.shutdown()
        self.tail.close()

    def stats(self) -> dict[str, int]:
        return {
            "connections": len(self._connections),
            "listeners": sum(map(len, self._groups.values())),
            "catching_up": len(self._catching_up),
            "groups": len(self._groups),
            "kept_bytes": sum(group.kept_bytes for group in self._groups.values()),
            "position": self.tail.position,
            "too_slow": self.too_slow,
            "refused": self.refused,
            "damaged": self.damaged,
        }

    # What connections tell

    def came(self, connection: Connection) -> None:
        if len(self._connections) >= self.options.connections and not self._evict():
            self.refused += 1
            connection.answer(503, "too many listen already")
        self._connections[connection] = None
        self._empty.clear()
        connection.transport.set_write_buffer_limits(high=self.options.write)
        connection.expect_end(self.options.handshake_s)

    def _evict(self) -> bool:
        """End the connection that has been about to ask for longest: whoever asks for nothing keeps nobody out."""
        for connection in self._connections:
            if connection.is_asking:
                connection.transport.abort()
                del self._connections[connection]
                return True
        return False

    def is_proxy(self, address: str) -> bool:
        """Whether others come through this address, whose own it is to say who they are."""
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(found in network for network in self._proxies)

    def address_of(self, transport: asyncio.Transport, forwarded: Sequence[str]) -> str:
        """Where somebody comes from: behind a proxy, what it says; the address of the proxy itself if it says nothing.

        Of a list, only the last entry is the proxy's own word.
        """
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        if forwarded and self.is_proxy(peer):
            return forwarded[-1].rpartition(",")[2].strip()[:64] or peer
        return peer

    def asked(self, connection: Connection, request: Request) -> None:
        """Let somebody in, or say why not."""
        path, _, text = request.path.partition("?")
        door, is_stream = self._doors.get(path), path in self._streams
        address = self.address_of(connection.transport, request.headers.get_all("X-Forwarded-For"))
        problem = self._problem(request, is_known=door is not None or is_stream)
        if problem is None and self._is_one_too_many(address):
            problem = 429, "too many listen from your address already"
        if problem:
            self.refused += 1
            connection.answer(*problem)
            return
        if door is not None:
            if not connection.upgrade(request):
                return
            connection.framing = WebSocketFraming.of(door)
        else:
            door = self._streams[path]
            connection.framing = SSE
            connection.stream()
        connection.door = door
        connection.address = address
        self._addresses[address] += 1
        connection.expect_end(None)
        seen = request.headers.get_all("Last-Event-ID") if is_stream else []
        if isinstance(door, ListeningDoor) and not is_stream:
            connection.listen(door.most_message_bytes)
        try:
            entrance = door.enter(_query(text, seen))
            if entrance.waits:
                connection.entrance = entrance
                connection.wanted = entrance.wanted
                connection.expect_end(self.options.hello_s)
            else:
                self._enter(connection, entrance)
        except Refusal as refusal:
            self.refused += 1
            connection.refuse(refusal.name, refusal.message, self.options.close_s)
        except HeadgateError as error:
            self._unreadable(connection, error)

    def paused(self, connection: Connection) -> None:
        connection.moved_at = time.monotonic()
        if group := self._group_of.get(connection):
            group.paused(connection)

    def resumed(self, connection: Connection) -> None:
        if group := self._group_of.get(connection):
            group.resumed(connection)
            if connection.next_wanted and not connection.is_paused:
                self._regroup(connection, connection.next_wanted.pop())

    def _is_one_too_many(self, address: str) -> bool:
        return 0 < self.options.per_address <= self._addresses[address] and not self.is_proxy(address)

    def heard(self, connection: Connection, message: bytes) -> None:
        """A listener has said what it wants. Whoever comes late with taking what waits gets that first, as it was."""
        door = connection.door
        if not isinstance(door, ListeningDoor):
            return
        connection.updates += 1
        try:
            if connection.updates > _MOST_UPDATES:
                raise Refusal("InvalidRequest", "you change your mind too often")
            wanted = door.heard(message, connection.next_wanted[-1] if connection.next_wanted else connection.wanted)
            if connection.entrance is not None:
                entrance, connection.entrance = replace(connection.entrance, wanted=wanted), None
                connection.expect_end(None)
                self._enter(connection, entrance)
            elif connection in self._group_of and connection.is_paused:
                connection.next_wanted = [wanted]
            else:
                self._regroup(connection, wanted)
        except Refusal as refusal:
            self.refused += 1
            connection.refuse(refusal.name, refusal.message, self.options.close_s)
        except HeadgateError as error:
            self._unreadable(connection, error)

    def _regroup(self, connection: Connection, wanted: object) -> None:
        """Give a connection a new filter. One that still catches up uses it from its next read on."""
        is_live = connection in self._group_of
        if is_live:
            self._leave_group(connection)
        connection.wanted = wanted
        if is_live:
            self._join(connection)

    def left(self, connection: Connection) -> None:
        if connection.address:
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]
        self._leave_group(connection)

    def _leave_group(self, connection: Connection) -> None:
        group = self._group_of.pop(connection, None)
        if group:
            group.remove(connection)
            if not group:
                self._groups.pop((group.door, group.framing, group.wanted), None)

    def gone(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()

    # Coming in

    def _problem(self, request: Request, *, is_known: bool) -> tuple[int, str] | None:
        headers, options = request.headers, self.options
        if not is_known:
            return 404, f"there is {' and '.join([*self._doors, *self._streams])}"
        if request.method != "GET":
            return 405, "only GET"
        if options.token is not None:
            given = headers.get_all("Authorization")
            if len(given) != 1 or not has_token(given[0], options.token):
                return 401, "the Authorization header must be: Bearer TOKEN"
        elif not options.any_origin:
            origins, hosts = headers.get_all("Origin"), headers.get_all("Host")
            if origins and is_foreign_origin(origins[0], hosts[0] if hosts else None):
                return 403, "pages of other sites may not listen here"
            if any(is_foreign_host(host) for host in hosts):
                return 403, "without a token this server answers to addresses only, not to names"
        return None

    def _enter(self, connection: Connection, entrance: Entrance) -> None:
        connection.wanted = entrance.wanted
        connection.moved_at = time.monotonic()
        connection.after, is_outdated = self._place(entrance)
        while self.tail.position < connection.after:
            self._publish(self.tail.poll(self.options.chunk))
        if is_outdated:
            connection.inform("OutdatedCursor", "what lies before the oldest event that is kept is not sent")
        if connection.after >= self.tail.position:
            self._join(connection)
        else:
            self._catching_up[connection] = asyncio.create_task(self._catch_up(connection))

    def _place(self, entrance: Entrance) -> tuple[int, bool]:
        """Behind which number to begin, and whether something before it is missing."""
        head = self.tail.reader.head_seq
        if entrance.seen is not None:
            wanted, is_future = entrance.seen + 1, entrance.seen > head
        elif entrance.cursor is not None:
            wanted, is_future = entrance.cursor, entrance.cursor > head
        else:
            return self.tail.position, False
        if is_future:
            raise Refusal("FutureCursor", "Cursor in the future.")
        oldest = self.tail.reader.oldest_seq
        return max(wanted, oldest) - 1, 0 < wanted < oldest

    def _join(self, connection: Connection) -> None:
        key = (connection.door, connection.framing, connection.wanted)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(connection.door, connection.framing, connection.wanted)
        self._group_of[connection] = group
        group.add(connection)

    async def _catch_up(self, connection: Connection) -> None:
        try:
            await replay(connection, self.tail, self._pool, self.options.chunk)
            if connection.is_open:
                self._join(connection)
        except LostError:
            self._cut(connection, "what you have not read yet was removed for its age")
        except HeadgateError as error:
            self._unreadable(connection, error)
        finally:
            del self._catching_up[connection]

    def _unreadable(self, connection: Connection, error: HeadgateError) -> None:
        _log.error("the log cannot be read", extra={"error": error.as_dict()})
        connection.end(_INTERNAL, "the log cannot be read", self.options.close_s)

    # Going on

    async def _tick(self) -> None:
        while True:
            try:
                records = self.tail.poll(self.options.chunk)
            except HeadgateError as error:
                _log.error("the log cannot be read", extra={"error": error.as_dict()})
                await asyncio.sleep(_SWEEP_S)
                continue
            self._tell_of_damage()
            if records:
                self._publish(records)
            await asyncio.sleep(0 if self.tail.is_behind else self.options.tick_s)

    def _tell_of_damage(self) -> None:
        for damage in self.tail.take_damage():
            self.damaged += 1
            for group in list(self._groups.values()):
                if said := group.door.info("DamagedLog", damage.text):
                    for connection in group.publish(group.framing.note(said), self.options.buffer):
                        self._cut(connection, "you do not keep up with what is sent")

    def _publish(self, records: Sequence[Record]) -> None:
        made: dict[tuple[Door, Framing], tuple[list[Message], bytes]] = {}
        for group in list(self._groups.values()):
            key = (group.door, group.framing)
            if key not in made:
                frames = framed(group.door, group.framing, records)
                made[key] = frames, b"".join([data for _, data in frames])
            frames, everything = made[key]
            data = everything if group.wanted is None else group.joined(frames)
            if data:
                for connection in group.publish(data, self.options.buffer):
                    self._cut(connection, "you do not keep up with what is sent")

    def _cut(self, connection: Connection, why: str) -> None:
        self.too_slow += 1
        connection.refuse("ConsumerTooSlow", why, self.options.close_s)

    async def _sweep(self) -> None:
        """Once a second: who has not moved for too long, and who has not been heard of."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            is_time = now - self._pinged_at >= self.options.ping_s
            if is_time:
                self._pinged_at = now
            for connection in [each for each in self._connections if each.is_open]:
                self._look_after(connection, now, is_time=is_time)

    def _look_after(self, connection: Connection, now: float, *, is_time: bool) -> None:
        connection.updates = 0
        waiting = connection.transport.get_write_buffer_size()
        if not waiting or waiting < connection.waiting_bytes:
            connection.moved_at = now
        connection.waiting_bytes = waiting
        if now - connection.moved_at > self.options.stall_s:
            self._cut(connection, "you have not read for too long")
        elif is_time and not waiting:
            self._ping(connection)

    def _ping(self, connection: Connection) -> None:
        if connection.framing is SSE:
            connection.transport.write(_STILL_HERE)
        elif connection.heard:
            connection.heard = False
            connection.transport.write(_PING)
        else:
            connection.transport.abort()


def _query(text: str, seen: list[str]) -> dict[str, list[str]]:
    try:
        query = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refusal("InvalidRequest", "the query cannot be read") from None
    if seen:
        query["last-event-id"] = seen
    return query
