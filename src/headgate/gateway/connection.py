"""One client's connection: frames in, answers out, in the order of the requests.

Requests start in the order in which they came and run side by side, so that a producer's many requests share a commit;
their answers wait for one another. A Fetch runs alone: nothing behind it starts until its answer has left, so a
connection never holds more than one answer that is big.

What a client can make the gateway keep is bounded four times: by the number of requests that wait, by the bytes of all
connections together (`Budget`), by not reading from those that do not read, and by the time in which a frame must get
on, a login be done or an answer be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, cast

from headgate.gateway.context import Context, Services, Session
from headgate.gateway.dispatch import respond
from headgate.gateway.handlers import HANDLERS
from headgate.gateway.handlers.session import versions_refused
from headgate.gateway.tls import CERTIFICATE, client_name
from headgate.model import ProtocolError
from headgate.wire.kafka import (
    LENGTH_BYTES,
    Body,
    Buffers,
    FrameSplitter,
    RequestHeader,
    encode_response,
    read_request_header,
)
from headgate.wire.kafka.messages.fetch import FETCH, FetchRequest
from headgate.wire.kafka.messages.membership import JoinGroupRequest
from headgate.wire.kafka.messages.session import (
    API_VERSIONS,
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

__all__ = ["Connection", "Owner"]

logger = logging.getLogger(__name__)

MAX_PIPELINED = 128
MAX_BACKLOG = 16
STRANGER_FRAME_BYTES = 64 << 10  # what may be sent before somebody has said who he is
SEND_BUFFER_BYTES = 1 << 20
SMALL_BUFFER_BYTES = 2048
SMALL_FRAME_BYTES = 256 << 10  # such a frame waits for nobody's memory
LEAST_BYTES_PER_S = 64 << 10  # a frame that comes slower than this is given up;
FINISHING_S, FINISHING_BYTES_PER_S = 2.0, 256 << 10  # and one for which others wait, if it is slower than that
_FETCH_KEY = FETCH.key.to_bytes(2)
_BEFORE_LOGIN = (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)


class Owner(Protocol):
    """The server, as a connection sees it."""

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for one more."""

    def closed(self, connection: Connection) -> None: ...


@dataclass(slots=True, eq=False)
class _Pending:
    """A request whose answer has not left."""

    header: RequestHeader
    kind: type[Body]
    size: int  # of the request, then of the answer: what the budget counts for it
    task: asyncio.Task[Buffers | None] | None = None
    buffers: Buffers | None = None  # the answer, once it is there; empty if there is none to be


class Connection(asyncio.Protocol):
    """A client that is connected."""

    def __init__(self, services: Services, owner: Owner) -> None:
        self._services = services
        self._owner = owner
        self._options = services.options
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter(
            max_bytes=STRANGER_FRAME_BYTES if self._options.is_guarded else self._options.max_frame_bytes
        )
        self._backlog: deque[tuple[bytes, int]] = deque()  # frames that have not started, and what the budget counts
        self._pending: deque[_Pending] = deque()
        self._partial = 0  # of the budget, what has arrived of a frame that is not whole
        self._unsent = 0  # of the budget, for answers that the client is slow to take
        self._is_alone = False  # a Fetch is running
        self._is_reading = True
        self._awaits_budget = False
        self._muted: asyncio.TimerHandle | None = None  # nothing is begun before this: its client has to wait
        self._is_clogged = False  # the client does not take its answers
        self._is_ending = False  # nothing more is read; what is pending is answered
        self._is_lost = False
        self._opened_at = self._last_data_at = self._loop.time()
        self._frame_seen: tuple[int, float] = (0, self._opened_at)  # how much of a frame there was, and when
        self._unsent_seen: tuple[int, float] = (0, 0.0)

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)
        self._context = Context(self._services, Session(peer=_peer(self._transport), address=_address(self._transport)))
        if not self._owner.opened(self):
            self._is_ending = True
            self._transport.abort()
        else:
            self._recognise()

    def _recognise(self) -> None:
        """A client that has shown a certificate has logged in with it."""
        session = self._context.session
        try:
            name = client_name(self._transport, self._options.tls_principal)
        except ProtocolError as error:
            self._services.audit.login_failed(session, CERTIFICATE, str(error))
            self._is_ending = True
            self._transport.abort()
            return
        if name is not None:
            session.user, session.mechanism, session.has_certificate = name, CERTIFICATE, True
            self._splitter.max_bytes = self._options.max_frame_bytes
            self._services.audit.logged_in(session, CERTIFICATE)

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._services.metrics.received_bytes += len(data)
        self._last_data_at = self._loop.time()
        if not self._partial:
            self._frame_seen = (0, self._last_data_at)
        self._take(len(data))
        self._partial += len(data)
        self._splitter.feed(data)
        try:
            for frame in self._splitter.frames():
                self._backlog.append((frame, len(frame) + LENGTH_BYTES))
                self._partial -= len(frame) + LENGTH_BYTES
                self._frame_seen = (0, self._last_data_at)
                self._services.budget.begin(len(frame) + LENGTH_BYTES)
                self._services.budget.finished(self)
        except ProtocolError as error:
            self._give_up(error)
        self._advance()

    def eof_received(self) -> bool:
        """A client that has sent all it has may still want its answers, but it cannot be a member of a group."""
        for pending in self._pending:
            if pending.task and pending.kind is JoinGroupRequest:
                pending.task.cancel()
        self.end()
        return self._transport.get_extra_info("sslcontext") is None  # TLS cannot be closed by half

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = self._is_ending = True
        self._unmute()
        self._services.fetch_sessions.close(self._context.session)
        for pending in self._pending:
            # What changes something runs to its end; nobody is there to read.
            if pending.task and pending.kind in (FetchRequest, JoinGroupRequest):
                pending.task.cancel()
        done = sum(pending.size for pending in self._pending if pending.buffers is not None)
        self._forget()
        self._give_back(done + self._unsent)
        self._unsent = 0
        self._pending = deque(pending for pending in self._pending if pending.buffers is None)
        self._owner.closed(self)

    def pause_writing(self) -> None:
        self._is_clogged = True

    def resume_writing(self) -> None:
        self._is_clogged = False
        self._give_back(self._unsent)
        self._unsent = 0
        self._flush()

    # -- what the server calls

    @property
    def peer(self) -> str:
        return self._context.session.peer

    @property
    def address(self) -> str:
        return self._context.session.address

    @property
    def is_stranger(self) -> bool:
        """Whether the client has not yet said who it is, and must."""
        return self._options.is_guarded and self._context.session.user is None

    @property
    def credential(self) -> tuple[str, str] | None:
        """Return the row of kafka.users that the client logged in with: name and mechanism."""
        return self._context.session.credential

    def expel(self, why: str) -> None:
        """Close the connection of a client that may no longer be here."""
        self._services.audit.ended(self._context.session, why)
        self.abort()

    def resume(self) -> None:
        """There may be memory for the rest of a frame."""
        self._update_reading()

    @property
    def tasks(self) -> list[asyncio.Task[Buffers | None]]:
        """What is running for this connection."""
        return [pending.task for pending in self._pending if pending.task]

    def end(self) -> None:
        """Read nothing more, answer what was read, and close."""
        self._is_ending = True
        self._unmute()
        self._flush()

    def drain(self) -> None:
        """End the connection as `end` does, but drop waiting Fetch requests: they may take long and change nothing."""
        self._backlog = deque(item for item in self._backlog if not self._dropped(item))
        for pending in self._pending:
            if pending.task and pending.kind is FetchRequest and pending.buffers is None:
                pending.task.cancel()
        self.end()

    def abort(self) -> None:
        self._transport.abort()

    def check(self, now: float) -> None:
        """Called every second: close what is idle, and what takes too long."""
        if why := self._overdue(now):
            logger.info("connection closed", extra={"peer": self.peer, "why": why})
            self.abort()

    # -- the way of a request

    def _take(self, size: int) -> None:
        self._services.budget.take(size, self.address)

    def _give_back(self, size: int) -> None:
        self._services.budget.give_back(size, self.address)

    def _done(self, size: int) -> None:
        """A request of that size is over."""
        self._services.budget.end(size)
        self._give_back(size)

    def _advance(self) -> None:
        """Start what may start, and read on if there is room."""
        while self._backlog and self._may_start():
            frame, size = self._backlog.popleft()
            try:
                self._start(frame, size)
            except ProtocolError as error:
                self._done(size)
                self._give_up(error)
        self._update_reading()
        self._close_when_done()

    def _may_start(self) -> bool:
        if self._is_alone or self._is_clogged or self._is_lost or self._muted or self._context.session.is_closing:
            return False
        return len(self._pending) < MAX_PIPELINED

    def _start(self, frame: bytes, size: int) -> None:
        header = read_request_header(frame)
        if header.api is None and header.api_key == API_VERSIONS.key:
            self._pending.append(_Pending(header, ApiVersionsRequest, size))
            self._answered(self._pending[-1], encode_response(header, versions_refused(HANDLERS)))
            return
        request = self._decode(header, frame)
        pending = _Pending(header, type(request), size)
        self._pending.append(pending)
        self._is_alone = pending.kind is FetchRequest
        pending.task = self._loop.create_task(self._run(header, request))
        # Not at the end of the task itself: one that is cancelled before it has begun never gets there.
        pending.task.add_done_callback(lambda task: self._answered(pending, _result(task)))

    def _decode(self, header: RequestHeader, frame: bytes) -> Body:
        api = header.api
        if api is None or api.request not in HANDLERS:
            raise ProtocolError(
                f"API {header.api_key} v{header.api_version} is not served",
                remedy="Use the APIs and versions that ApiVersions offers.",
            )
        if self.is_stranger and api.request not in _BEFORE_LOGIN:
            raise ProtocolError(f"{api.name} before the login", remedy="Set the client's SASL mechanism and password.")
        expires_at = self._context.session.expires_at
        if expires_at is not None and self._loop.time() >= expires_at and api.request not in _BEFORE_LOGIN:
            self._services.audit.ended(self._context.session, "the login has expired")
            raise ProtocolError(f"{api.name} after the login has expired", remedy="Use a client that logs in again.")
        body: Body = api.decode_request(frame, header.api_version, header.body_start, allow_rest=True)
        return body

    async def _run(self, header: RequestHeader, request: Body) -> Buffers | None:
        try:
            response = await respond(self._context, header, request)
            return [] if response is None else encode_response(header, response)
        except ProtocolError as error:
            self._give_up(error)
            return None

    def _answered(self, pending: _Pending, buffers: Buffers | None) -> None:
        """An answer is there. None: there can be none, and the connection ends here."""
        size = sum(map(len, buffers or ()))
        self._take(size)
        self._done(pending.size)
        if pending.kind is FetchRequest:
            self._give_back(self._context.answer.settle())
        if self._is_lost:
            self._give_back(size)
            if pending in self._pending:
                self._pending.remove(pending)
            return
        pending.size, pending.buffers = size, buffers or []
        if buffers is None:
            self._is_ending = True
            self._context.session.is_closing = True
        self._flush()

    def _flush(self) -> None:
        """Send the answers whose turn it is."""
        while self._pending and self._pending[0].buffers is not None and not self._is_clogged:
            self._send(self._pending.popleft())
        self._advance()

    def _send(self, pending: _Pending) -> None:
        if pending.kind is FetchRequest:
            self._is_alone = False
        if self._context.session.user and self._options.is_guarded:
            self._splitter.max_bytes = self._options.max_frame_bytes
        if self._context.session.mute_s:
            self._mute()
        if pending.buffers and not self._transport.is_closing():
            self._services.metrics.sent_bytes += pending.size
            self._write(pending.buffers, pending.size)
        if self._is_clogged:
            self._unsent += pending.size
        else:
            self._give_back(pending.size)

    def _mute(self) -> None:
        """Do nothing more for this client for a while; the others do not notice."""
        mute_s, self._context.session.mute_s = self._context.session.mute_s, 0.0
        if self._is_ending:
            return
        if self._muted:
            self._muted.cancel()
        self._muted = self._loop.call_later(mute_s, self._go_on)

    def _unmute(self) -> None:
        if self._muted:
            self._muted.cancel()
            self._muted = None

    def _go_on(self) -> None:
        self._muted = None
        self._last_data_at = self._loop.time()  # it could not send before
        self._frame_seen = (self._partial, self._last_data_at)
        self._advance()

    def _write(self, buffers: Buffers, size: int) -> None:
        """Big buffers go out as they are; to copy many small ones together costs less than to hand each over."""
        if size < len(buffers) * SMALL_BUFFER_BYTES:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    # -- reading and closing

    def _update_reading(self) -> None:
        if self._is_lost or self._transport.is_closing():
            return
        awaited = self._awaits_budget
        self._awaits_budget = not self._has_room()
        if awaited and not self._awaits_budget:
            self._frame_seen = (self._partial, self._loop.time())  # it could not get on before
        # A little is read ahead: that a client has gone is noticed by reading only.
        is_full = len(self._backlog) >= (1 if self._services.budget.is_short(self.address) else MAX_BACKLOG)
        wants = not (is_full or self._awaits_budget or self._is_ending or self._is_clogged or self._muted)
        if wants != self._is_reading:
            self._is_reading = wants
            (self._transport.resume_reading if wants else self._transport.pause_reading)()

    def _has_room(self) -> bool:
        """Whether there is memory for the rest of a frame that has begun, if it is a large one."""
        if self._is_ending:
            return True
        try:
            size, missing = self._splitter.missing
        except ProtocolError as error:
            self._give_up(error)
            return True
        return size <= SMALL_FRAME_BYTES or missing <= 0 or self._services.budget.may_read(self)

    def _close_when_done(self) -> None:
        is_done = not self._pending and (not self._backlog or self._context.session.is_closing)
        if is_done and (self._is_ending or self._context.session.is_closing) and not self._transport.is_closing():
            self._transport.close()

    def _give_up(self, error: ProtocolError) -> None:
        """Where the next frame begins, or what the client wants, is not known: answer what came before, and close."""
        logger.info("connection given up", extra={"peer": self.peer, "why": str(error)})
        self._forget()
        self._is_ending = True

    def _forget(self) -> None:
        """What has arrived and not begun, whole or not, is let go of."""
        self._done(sum(size for _, size in self._backlog))
        self._backlog.clear()
        self._splitter = FrameSplitter(max_bytes=self._splitter.max_bytes)
        self._give_back(self._partial)
        self._partial = 0
        self._services.budget.finished(self)

    def _dropped(self, item: tuple[bytes, int]) -> bool:
        frame, size = item
        if frame[:2] != _FETCH_KEY:
            return False
        self._done(size)
        return True

    def _overdue(self, now: float) -> str:
        stall_s = self._options.stall_timeout_s
        if self.is_stranger and now - self._opened_at > stall_s:
            return "no login"
        if self._partial and not self._awaits_budget and self._is_reading and self._is_slow(now):
            return "a frame that does not get on"
        if self._is_clogged and self._reads_nothing(now):
            return "answers are not read"
        is_waiting = self._pending or self._is_clogged or self._muted
        if not is_waiting and now - self._last_data_at > self._options.idle_timeout_s:
            return "idle"
        return ""

    def _is_slow(self, now: float) -> bool:
        """Whether a frame comes too slowly, over a while; one that others wait for has less time."""
        is_awaited = self._services.budget.is_finishing(self)
        window_s = min(FINISHING_S, self._options.stall_timeout_s) if is_awaited else self._options.stall_timeout_s
        seen, since = self._frame_seen
        if now - since <= window_s:
            return False
        self._frame_seen = (self._partial, now)
        least = FINISHING_BYTES_PER_S if is_awaited else LEAST_BYTES_PER_S
        return self._partial - seen < least * window_s

    def _reads_nothing(self, now: float) -> bool:
        left = self._transport.get_write_buffer_size()
        if self._unsent_seen[0] != left:
            self._unsent_seen = (left, now)
        return now - self._unsent_seen[1] > self._options.stall_timeout_s


def _result(task: asyncio.Task[Buffers | None]) -> Buffers | None:
    if task.cancelled():
        return None
    if fault := task.exception():
        logger.error("an answer could not be written", exc_info=fault)
        return None
    return task.result()


def _address(transport: asyncio.Transport) -> str:
    name: Any = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""


def _peer(transport: asyncio.Transport) -> str:
    name: Any = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
