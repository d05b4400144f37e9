"""A NATS connection for one thread: handshake, keep-alive, request and reply, and bulk sending.

One wildcard subscription on a private inbox receives everything: the answers to requests and, for a publisher, the
acknowledgements. There is no background thread and no event loop, because a Spark worker is neither asked for.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from headgate.destinations.nats.credentials import connect_fields
from headgate.destinations.nats.errors import server_error
from headgate.destinations.nats.transport import Deadline, Transport, tls_context
from headgate.model import ConnectError, DependencyError, HeadgateError, ProtocolError
from headgate.wire.nats import (
    Err,
    Event,
    Info,
    Msg,
    Parser,
    Ping,
    Pong,
    ServerInfo,
    encode_connect,
    encode_hpub,
    encode_pub,
    encode_sub,
    ping_line,
    pong_line,
)

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions, Server

__all__ = ["INBOX_SID", "Connection"]

INBOX_SID = 1
# Letters only: the scanner of acknowledgements tells the digits that follow from the inbox.
_INBOX_LETTERS = string.ascii_letters
_INBOX_LENGTH = 11


class Connection:
    """An open connection. Create it with `open`; use it from one thread; close it."""

    def __init__(self, options: NatsOptions, server: Server) -> None:
        deadline = Deadline(options.connect_timeout_s)
        self._parser = Parser()
        self._control = bytearray()  # PONGs that wait for a boundary between frames
        self._requests = 0
        self._pongs = 0
        self._greeted = False
        self.info = ServerInfo()
        self.inbox = options.inbox_prefix + "." + "".join(secrets.choice(_INBOX_LETTERS) for _ in range(_INBOX_LENGTH))
        self._transport = Transport(server, options.connect_timeout_s)
        self.where = self._transport.where
        try:
            self._handshake(options, server, deadline)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, options: NatsOptions) -> Self:
        """Connect to the first server of `options.url` that answers; raise the last one's error if none does."""
        failure: HeadgateError | None = None
        for server in options.servers():
            try:
                return cls(options, server)
            except (ConnectError, ProtocolError) as error:
                failure = error
        assert failure is not None
        raise failure

    def close(self) -> None:
        """Close the socket; closing twice is fine."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, subject: str, payload: bytes = b"", *, headers: bytes = b"", timeout_s: float = 5.0) -> Msg:
        """Send one message and wait for its answer. A 503 without responders is an answer too."""
        deadline = Deadline(timeout_s)
        self._requests += 1
        reply = f"{self.inbox}.r{self._requests}"
        frame = encode_hpub(subject, headers, payload, reply) if headers else encode_pub(subject, payload, reply)
        arrived: list[Msg] = []
        self.send(memoryview(frame), timeout_s=timeout_s, on_data=lambda data: arrived.extend(self.messages(data)))
        while True:
            for message in arrived:
                if message.subject == reply:
                    return message
            if deadline.passed:
                raise ConnectError(f"no answer to {subject} within {timeout_s:g} s", where=self.where)
            arrived = list(self.messages(self.receive(deadline.left_s)))

    def request_all(self, subject: str, payloads: Sequence[bytes], *, timeout_s: float = 5.0) -> list[Msg]:
        """Send messages one behind the other and wait for all answers, which come back in the order of the messages."""
        deadline = Deadline(timeout_s)
        replies = [f"{self.inbox}.r{self._requests + number}" for number in range(1, len(payloads) + 1)]
        self._requests += len(payloads)
        frames = b"".join(encode_pub(subject, each, to) for each, to in zip(payloads, replies, strict=True))
        answers: dict[str, Msg] = {}

        def take(data: bytes) -> None:
            answers.update((message.subject, message) for message in self.messages(data))

        self.send(memoryview(frames), timeout_s=timeout_s, on_data=take)
        while not all(reply in answers for reply in replies):
            if deadline.passed:
                raise ConnectError(f"no answer to {subject} within {timeout_s:g} s", where=self.where)
            take(self.receive(deadline.left_s))
        return [answers[reply] for reply in replies]

    def ping(self, timeout_s: float) -> None:
        """Make sure that the server still answers; raises `ConnectError` otherwise."""
        deadline = Deadline(timeout_s)
        target = self._pongs + 1
        self._control += ping_line
        while self._pongs < target:
            if deadline.passed:
                raise ConnectError(f"no answer to PING within {timeout_s:g} s", where=self.where)
            for _ in self.messages(self.receive(deadline.left_s)):
                pass

    def send(self, frames: memoryview, *, timeout_s: float, on_data: Callable[[bytes], None]) -> None:
        """Write whole frames, passing on everything that arrives meanwhile.

        `timeout_s` bounds the time without any progress, not the whole call.
        """
        out = self._with_control(frames)
        while out:
            written, data = self._transport.exchange(out, timeout_s)
            if not written and not data:
                raise ConnectError(f"the server took nothing for {timeout_s:g} s", where=self.where)
            out = out[written:]
            if data:
                on_data(data)

    def receive(self, timeout_s: float) -> bytes:
        """Bytes from the server, or nothing if none come in time. Sends what the last bytes called for."""
        if self._control:
            arrived: list[bytes] = []
            self.send(memoryview(b""), timeout_s=timeout_s, on_data=arrived.append)
            if arrived:
                return b"".join(arrived)
        return self._transport.exchange(None, timeout_s)[1]

    def messages(self, data: bytes) -> Iterator[Msg]:
        """The messages in `data`; answers PING, notes INFO, and raises what `-ERR` means."""
        self._parser.feed(data)
        for event in self._events():
            if isinstance(event, Msg):
                yield event
            else:
                self._handle(event)

    @property
    def between_events(self) -> bool:
        """Whether the parser holds no part of a message."""
        return self._parser.idle

    def _events(self) -> Iterator[Event]:
        try:
            yield from self._parser.events()
        except ProtocolError as error:
            raise error.at(self.where) from None

    def _handle(self, event: Event) -> None:
        match event:
            case Ping():
                self._control += pong_line
            case Pong():
                self._pongs += 1
            case Info(server):
                self.info, self._greeted = server, True
            case Err(text):
                raise server_error(text, self.where)

    def _with_control(self, frames: memoryview) -> memoryview:
        if not self._control:
            return frames
        control, self._control = self._control, bytearray()
        return memoryview(bytes(control) + bytes(frames))

    def _handshake(self, options: NatsOptions, server: Server, deadline: Deadline) -> None:
        wants_tls = server.tls or options.tls_first or bool(options.tls_ca or options.tls_cert)
        if options.tls_first:
            self._transport.start_tls(tls_context(options), deadline.left_s)
        self._await_info(deadline)
        if not self.info.headers:
            raise DependencyError("the server has no message headers", remedy="use nats-server 2.2+", where=self.where)
        if not options.tls_first and (wants_tls or self.info.tls_required):
            self._upgrade(options, deadline)
        fields = connect_fields(options, server, self.info.nonce)
        hello = encode_connect(_client_fields(options, wants_tls or self.info.tls_required) | fields)
        # In one piece with the subscription and the PING: the server either accepts all of it or says why not.
        self._control += hello + encode_sub(f"{self.inbox}.>", INBOX_SID)
        self.ping(deadline.left_s)

    def _await_info(self, deadline: Deadline) -> None:
        """Read the greeting and not a byte more: what follows may already be TLS."""
        while not self._greeted:
            if deadline.passed:
                raise ConnectError("the server did not greet in time", remedy="is it a NATS port?", where=self.where)
            self._parser.feed(self.receive(deadline.left_s))
            for event in self._events():
                if not isinstance(event, Info | Err):
                    raise ProtocolError("the server did not start with INFO", where=self.where)
                self._handle(event)
                break

    def _upgrade(self, options: NatsOptions, deadline: Deadline) -> None:
        if not (self.info.tls_required or self.info.tls_available):
            remedy = "enable TLS on the server, or remove tls:// and the tls_ options"
            raise ConnectError("the server does not offer TLS", remedy=remedy, where=self.where)
        if not self._parser.idle:
            # Bytes that came in the clear must not be taken for bytes of the encrypted session.
            raise ProtocolError("the server sent data between INFO and TLS", where=self.where)
        self._transport.start_tls(tls_context(options), deadline.left_s)


def _client_fields(options: NatsOptions, tls: bool) -> dict[str, object]:
    return {
        "verbose": False,
        "pedantic": False,
        "tls_required": tls,
        "name": options.client_name,
        "lang": "python-headgate",
        "version": "1",
        "protocol": 1,
        "echo": False,
        "headers": True,
        "no_responders": True,
    }
