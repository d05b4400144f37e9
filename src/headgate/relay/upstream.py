"""One host, followed: connect, read frames, hand them to the intake, and come back after whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from hashlib import sha256
from typing import Final

from picows import WSCloseCode, WSError, WSFrame, WSListener, WSMsgType, WSParsedURL, WSTransport, ws_connect

from headgate.model import ConnectError, HeadgateError
from headgate.relay.intake import Intake
from headgate.relay.ledger import DropReason
from headgate.relay.limits import Buckets
from headgate.relay.net import connect
from headgate.relay.options import RelayOptions
from headgate.runtime.backoff import backoff_s
from headgate.wire.atproto import MAX_FRAME_BYTES, AtprotoError, ErrorNote, Frame, Kind, read_event, read_frame

__all__ = ["Upstream"]

logger = logging.getLogger(__name__)

_PATH: Final = "/xrpc/com.atproto.sync.subscribeRepos"
_HIGH_BYTES = 1 << 20  # read this far ahead of the reader, no further
_MESSAGE_BYTES = 200  # what a message costs beyond its bytes: empty ones count, too
_NOISE = b""  # in the place of what is no binary message: it means nothing, but counts
_MAX_PARTS = 10_000
_MAX_OBSTACLES = 3
_CONNECT_S = 15.0
_LASTING_S = 10.0  # a connection that ends sooner, and brought nothing, is a failure


class _Inbox(WSListener):
    """Whole messages in the order they came. The socket is not read while too many wait here."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._stirred = asyncio.Event()
        self._paused = False
        self._leaving = False
        self.closed = False
        self.too_much = False  # more in one message than there may be, or none of WebSocket's frames
        self.transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind in (WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._add(transport, frame.get_payload_as_bytes(), whole=bool(frame.fin))
        elif kind == WSMsgType.CLOSE:
            self._leaving = True
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        else:
            self._queue(transport, _NOISE)  # a pong is a sign of life, too; and a thousand of them are read one by one
        self._stirred.set()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.closed = True
        # When it was not we who said goodbye, it was the library, to a host that broke the protocol.
        self.too_much |= transport.is_close_frame_sent and not self._leaving
        self._stirred.set()

    def _add(self, transport: WSTransport, part: bytes, *, whole: bool) -> None:
        self._parts.append(part)
        self._part_bytes += len(part)
        if self._part_bytes > MAX_FRAME_BYTES or len(self._parts) > _MAX_PARTS:
            self.too_much = True
            transport.disconnect()
            return
        if whole:
            message = part if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._part_bytes = [], 0
            self._queue(transport, message)

    def _queue(self, transport: WSTransport, message: bytes) -> None:
        self._messages.append(message)
        self._bytes += len(message) + _MESSAGE_BYTES
        if self._bytes > _HIGH_BYTES and not self._paused and not self._leaving:
            self._paused = True
            transport.underlying_transport.pause_reading()

    async def get(self, silence_s: float) -> bytes | None:
        """The next message; None at the end. A host that is silent is pinged, and left if it stays so."""
        pinged = False
        while not self._messages:
            if self.closed or self.transport is None:
                return None
            self._stirred.clear()
            try:
                async with asyncio.timeout(silence_s):
                    await self._stirred.wait()
                pinged = False
            except TimeoutError:
                if pinged:
                    raise ConnectError("the host does not answer", remedy="it is connected to again") from None
                self.transport.send_ping()
                pinged = True
        message = self._messages.popleft()
        self._bytes -= len(message) + _MESSAGE_BYTES
        if self._paused and self._bytes < _HIGH_BYTES // 2 and self.transport is not None and not self.closed:
            self._paused = False
            self.transport.underlying_transport.resume_reading()
        return message


class _Ended(Exception):  # noqa: N818  a host may say goodbye
    """The host ended the stream, with a word."""


class Upstream:
    """Follows a host until it has failed too often in a row. Cancel `run` to stop it."""

    def __init__(
        self,
        hostname: str,
        intake: Intake,
        options: RelayOptions,
        *,
        total: Buckets,
        tls: ssl.SSLContext | None,
        connecting: asyncio.Semaphore,
        failures: int = 0,
    ) -> None:
        self.hostname, self._intake, self._options = hostname, intake, options
        self._total, self._tls, self._connecting = total, tls, connecting
        self._track = intake.track(hostname)
        self._poison: bytes | None = None
        self._nudged = asyncio.Event()
        self._events = 0  # of this connection
        self._obstacles = 0
        self.failures = failures
        self.connected = False
        self.last_frame_at = 0.0  # seconds since 1970
        self.from_oldest = False  # with no cursor: from the oldest event, not from now on

    async def run(self) -> None:
        while True:
            began, self._events = time.monotonic(), 0
            try:
                await self._follow()
            except (HeadgateError, WSError, OSError, _Ended) as error:
                logger.info("%s: %s", self.hostname, error)
            finally:
                self.connected = False
            lasted = self._events > 0 or time.monotonic() - began > _LASTING_S
            self.failures = 1 if lasted else self.failures + 1
            if self.failures >= self._options.failures_until_offline:
                return
            await self._pause()

    def nudge(self) -> None:
        """Somebody says that the host is there: try again without the long pause."""
        self._nudged.set()

    async def _pause(self) -> None:
        first_s = self._options.backoff_s[0]
        pause_s = backoff_s(self.failures, self._options.backoff_s, random.random())  # no secret depends on it
        await asyncio.sleep(min(pause_s, first_s))  # however often it is nudged
        self._nudged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s - first_s):
                await self._nudged.wait()

    async def _follow(self) -> None:
        async with self._connecting:
            transport, inbox = await ws_connect(
                _Inbox,
                self._url(),
                ssl_context=self._tls,
                websocket_handshake_timeout=_CONNECT_S,
                enable_auto_ping=False,
                max_frame_size=MAX_FRAME_BYTES,
                max_redirects=0,
                socket_factory=self._dial,
                extra_headers={"User-Agent": "headgate-relay"},
            )
        assert isinstance(inbox, _Inbox)
        self.connected = True
        try:
            while (message := await inbox.get(self._options.idle_timeout_s)) is not None:
                await self._take(message)
        finally:
            transport.disconnect()
        if inbox.too_much:
            self._give_up_cursor()

    def _give_up_cursor(self) -> None:
        """A message that cannot be read at all is in the way. When it is again and again, go on behind it."""
        self._obstacles = 1 if self._events else self._obstacles + 1
        if self._obstacles >= _MAX_OBSTACLES:
            logger.warning("%s: something after %d cannot be read: from now on", self.hostname, self._track.last)
            self._track.restart(0)
            self.from_oldest, self._obstacles = False, 0

    def _url(self) -> str:
        scheme = "ws" if self._tls is None else "wss"
        cursor = self._track.last
        query = f"?cursor={cursor}" if cursor or self.from_oldest else ""
        return f"{scheme}://{self.hostname}{_PATH}{query}"

    async def _dial(self, url: WSParsedURL) -> socket.socket:
        return await connect(url.host, url.port, allow_private=self._options.allow_private, timeout_s=_CONNECT_S)

    async def _take(self, message: bytes) -> None:
        """Every message is paid for before it is looked at, whatever it may be."""
        await self._wait_for_budget(len(message))
        if not message:
            return
        ledger = self._intake.ledger
        ledger.received(self.hostname, len(message))
        self.last_frame_at = time.time()
        frame = self._read(message)
        if frame is None:
            return
        if frame.kind is Kind.ERROR:
            ledger.ignored(self.hostname)
            self._ended(frame)
        if frame.seq and (frame.seq <= self._track.last or self._track.was_read(frame.seq)):
            # Only counted: a cursor is inclusive, so the first event after every reconnect is one.
            ledger.dropped(self.hostname, DropReason.REPEATED_SEQ)
            return
        self._events += frame.seq > 0
        await self._intake.submit(self.hostname, frame, message)

    def _read(self, message: bytes) -> Frame | None:
        """The frame. One that is none ends the connection, but only once: a host that has it in its log, and sends it
        again after every reconnect, would otherwise never get past it.
        """
        try:
            return read_frame(message)
        except AtprotoError as error:
            self._intake.ledger.dropped(self.hostname, error.reason)
            digest = sha256(message).digest()
            if digest == self._poison:
                return None
            self._poison = digest
            raise

    def _ended(self, frame: Frame) -> None:
        event = read_event(frame)
        name = event.name if isinstance(event, ErrorNote) else ""
        if name == "FutureCursor":  # the host counts anew: from its beginning, where what is known is dropped as old
            self._track.restart(0)
            self.from_oldest = True
        raise _Ended(name)

    async def _wait_for_budget(self, size: int) -> None:
        wait_s, budget = self._total.take(), self._track.budget
        if budget is not None:
            wait_s = max(wait_s, budget.take(size))
        if wait_s > 0:
            await asyncio.sleep(wait_s)
