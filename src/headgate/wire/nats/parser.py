"""What the server says, read incrementally: INFO, MSG, HMSG, PING, PONG, +OK, -ERR.

Feed bytes as they come and take the events out; any split of the byte stream gives the same events. Lines and payloads
are bounded, so a hostile peer costs a bounded amount of memory and then a `ProtocolError`. After an error the parser
stays broken: the place of the next message is unknown.

    parser.feed(data)
    for event in parser.events():
        ...

Specification: NATS documentation, "Client Protocol"; ADR-4 (headers).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.model import ProtocolError
from headgate.wire.nats.headers import Headers, parse_headers

__all__ = ["Err", "Event", "Info", "Msg", "Ok", "Parser", "Ping", "Pong", "ServerInfo"]

# INFO lists every server of a cluster; nothing else comes near this length.
MAX_LINE_BYTES = 128 * 1024
# The server's own ceiling is 64 MiB (NATS documentation, Configuration, `max_payload`); JetStream wraps a stored
# message in base64.
MAX_PAYLOAD_BYTES = 96 * 1024 * 1024

_BLANKS = re.compile(rb"[ \t]+")
_NUMBER = re.compile(rb"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The fields of INFO that headgate uses."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    max_payload: int = 1024 * 1024
    headers: bool = False
    jetstream: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    nonce: str = ""
    ldm: bool = False  # lame duck mode: the server is about to go away
    connect_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Info:
    """The greeting, repeated when the cluster changes."""

    server: ServerInfo


@dataclass(frozen=True, slots=True)
class Msg:
    """MSG or HMSG: a message for one of our subscriptions."""

    subject: str
    sid: int
    reply: str
    payload: bytes
    headers: Headers = field(default_factory=Headers)


@dataclass(frozen=True, slots=True)
class Ping:
    """The server asks whether we live; the answer is PONG."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to our PING."""


@dataclass(frozen=True, slots=True)
class Ok:
    """`+OK`, sent only in verbose mode."""


@dataclass(frozen=True, slots=True)
class Err:
    """`-ERR 'text'`; most of them are followed by the end of the connection."""

    text: str


Event = Info | Msg | Ping | Pong | Ok | Err


@dataclass(frozen=True, slots=True)
class _Head:
    """A MSG or HMSG line whose payload is still to come. `header_size` is -1 for MSG."""

    subject: str
    sid: int
    reply: str
    header_size: int
    total_size: int


class Parser:
    """Bytes in through `feed`, events out through `events`."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()
        self._searched = 0  # no line end before this offset
        self._head: _Head | None = None
        self._broken: ProtocolError | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing of a further event has arrived yet."""
        return not self._buffer and self._head is None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes; take the events out before feeding more."""
        self._buffer += data

    def events(self) -> Iterator[Event]:
        """Every complete event; raises `ProtocolError` at the first illegal byte, after the events before it."""
        if self._broken:
            raise self._broken
        try:
            while (event := self._next()) is not None:
                yield event
        except ProtocolError as error:
            self._broken = error
            self._buffer.clear()
            raise

    def _next(self) -> Event | None:
        if self._head is None:
            line = self._take_line()
            if line is None:
                return None
            parsed = self._parse_line(line)
            if not isinstance(parsed, _Head):
                return parsed
            self._head = parsed
        return self._take_message(self._head)

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._searched)
        if end > self._max_line_bytes or (end < 0 and len(self._buffer) > self._max_line_bytes + 1):
            raise ProtocolError(f"NATS server sent a line longer than {self._max_line_bytes} bytes")
        if end < 0:
            self._searched = max(0, len(self._buffer) - 1)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        self._searched = 0
        return line

    def _take_message(self, head: _Head) -> Msg | None:
        size = head.total_size
        if len(self._buffer) < size + 2:
            return None
        if self._buffer[size : size + 2] != b"\r\n":
            raise ProtocolError("NATS message is longer than its line says")
        content = bytes(self._buffer[:size])
        del self._buffer[: size + 2]
        self._head = None
        if head.header_size < 0:
            return Msg(head.subject, head.sid, head.reply, content)
        headers = parse_headers(content[: head.header_size])
        return Msg(head.subject, head.sid, head.reply, content[head.header_size :], headers)

    def _parse_line(self, line: bytes) -> Event | _Head:
        name, _, rest = line.partition(b" ")
        match name.upper():
            case b"MSG":
                return self._message_head(_BLANKS.split(rest.strip(b" \t")), with_headers=False)
            case b"HMSG":
                return self._message_head(_BLANKS.split(rest.strip(b" \t")), with_headers=True)
            case b"PING":
                return Ping()
            case b"PONG":
                return Pong()
            case b"+OK":
                return Ok()
            case b"-ERR":
                return Err(rest.decode("utf-8", "replace").strip(" \t'"))
            case b"INFO":
                return Info(_parse_info(rest))
        raise ProtocolError(f"not a NATS server: it sent {line[:40]!r}")

    def _message_head(self, words: list[bytes], *, with_headers: bool) -> _Head:
        sizes = 2 if with_headers else 1
        if len(words) not in (2 + sizes, 3 + sizes):
            raise ProtocolError(f"NATS message line has {len(words)} fields")
        subject, sid, *reply = words[:-sizes]
        header_size = _number(words[-2]) if with_headers else -1
        total_size = _number(words[-1])
        if total_size > self._max_payload_bytes:
            raise ProtocolError(f"NATS message of {total_size} bytes exceeds the bound of {self._max_payload_bytes}")
        if header_size > total_size:
            raise ProtocolError("NATS message has headers longer than the message")
        return _Head(_word(subject), _number(sid), _word(reply[0]) if reply else "", header_size, total_size)


def _number(word: bytes) -> int:
    if not _NUMBER.fullmatch(word):
        raise ProtocolError(f"not a number in a NATS message line: {word[:20]!r}")
    return int(word)


def _word(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"not UTF-8 in a NATS message line: {raw[:40]!r}") from None


def _parse_info(text: bytes) -> ServerInfo:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("NATS INFO is not JSON") from None
    if not isinstance(fields, dict):
        raise ProtocolError("NATS INFO is not a JSON object")
    known = {name: _checked(name, fields[name]) for name in ServerInfo.__slots__ if name in fields}
    return replace(ServerInfo(), **known)


def _checked(name: str, value: object) -> Any:
    """An INFO field, if its JSON type is the one that `ServerInfo` declares."""
    default = getattr(ServerInfo(), name)
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif type(value) is type(default):
        return value
    raise ProtocolError(f"NATS INFO has a malformed {name}")
