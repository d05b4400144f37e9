"""What a door is: how records become messages for those who listen, and what it says when something is wrong.

A record may become several messages, or none. Each has a subject, which is whatever the door's filters look at. The
messages of a record are made and framed once, however many listen; listeners with equal filters share one buffer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from headgate.eventlog.records import Record

__all__ = ["SSE", "Door", "Entrance", "Framing", "ListeningDoor", "Message", "Refusal", "WebSocketFraming"]

_TEXT, _BINARY = 0x1, 0x2
_SHORT, _MEDIUM = 125, 65_535


class Message(NamedTuple):
    """One message, and what filters may look at."""

    subject: Any
    data: bytes


@dataclass(frozen=True, slots=True)
class Entrance:
    """What somebody wants who comes in."""

    cursor: int | None = None  # from this number on; None is live
    seen: int | None = None  # or behind this number
    wanted: Hashable = None  # None is everything
    waits: bool = False  # nothing is sent before the listener has said what it wants


class Refusal(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """What somebody asked for cannot be had."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message


class Door(Protocol):
    """One way to read a log. `messages` and `wants` are called in several threads, and must depend on nothing else."""

    is_text: bool  # of messages over WebSocket

    def enter(self, query: Mapping[str, Sequence[str]]) -> Entrance:
        """Read the query of a request; raises `Refusal`."""

    def messages(self, record: Record) -> Sequence[Message]:
        """What is sent of a record."""

    def wants(self, subject: Any, wanted: Any) -> bool:
        """Whether a message is for those with this filter, which is not None."""

    def info(self, name: str, message: str) -> bytes | None:
        """A message between the events; None if this door has no such thing."""

    def error(self, name: str, message: str) -> bytes | None:
        """The last message before the connection is closed."""


@runtime_checkable
class ListeningDoor(Protocol):
    """A door that reads what listeners send: text, of no more than so many bytes. Other doors ignore it."""

    most_message_bytes: int

    def heard(self, message: bytes, wanted: Any) -> Hashable:
        """What a listener wants from now on, who wanted this before; raises `Refusal`."""


class Framing(Protocol):
    """How messages are put on a connection."""

    def event(self, seq: int, data: bytes) -> bytes: ...

    def note(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class WebSocketFraming:
    """Frames from a server are not masked, so one buffer serves everybody (RFC 6455, section 5.2)."""

    opcode: int

    @classmethod
    def of(cls, door: Door) -> WebSocketFraming:
        return cls(_TEXT if door.is_text else _BINARY)

    def event(self, seq: int, data: bytes) -> bytes:
        return self.note(data)

    def note(self, data: bytes) -> bytes:
        size, first = len(data), 0x80 | self.opcode
        if size <= _SHORT:
            return bytes((first, size)) + data
        if size <= _MEDIUM:
            return bytes((first, 126)) + size.to_bytes(2, "big") + data
        return bytes((first, 127)) + size.to_bytes(8, "big") + data


@dataclass(frozen=True, slots=True)
class _Sse:
    """Server-sent events; the id by which a listener resumes is the sequence number."""

    def event(self, seq: int, data: bytes) -> bytes:
        return b"id: %d\ndata: %b\n\n" % (seq, data)

    def note(self, data: bytes) -> bytes:
        return b"event: note\ndata: %b\n\n" % data


SSE: Framing = _Sse()
