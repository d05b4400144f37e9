"""The newest messages of a destination, for the event viewer. Of kinds that cannot be read back, it says so.

A kind is readable if headgate can ask for its newest messages without becoming a consumer that others would notice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from headgate.control.dashboard.shown import Value, shown_value
from headgate.destinations.base import Destination
from headgate.destinations.log import LogDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import JetStream, NatsDestination, StoredMessage
from headgate.postgres import open_connection
from headgate.wire.nats.subject import covers

__all__ = ["Message", "Tail", "Tails", "Wanted", "unreadable"]

_SHOWN = 20
_SCANNED = 200  # of the newest, where only some are wanted
_MOST_KEPT = 32
_SETTINGS = {"statement_timeout": "2s", "default_transaction_read_only": "on"}
_CONNECT_S = 2

_WHY = {
    "kafka": "Its messages are in your Kafka cluster: kcat -b SERVERS -t TOPIC -C -o -20 shows the newest.",
    "broker": "The page of the broker shows the newest events.",
    "table": "Its rows are in a table: read it with Spark, DuckDB or whatever else reads it.",
    "eventlog": "Follow it over WebSocket: headgate eventlog serve says where.",
    "iggy": "Ask Iggy's own client for its messages.",
    "webhook": "What was sent is with whoever received it.",
    "console": "What was printed is in the terminal.",
    "discard": "What is discarded is gone.",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show of a destination."""

    stream: str = ""
    topic: str = ""
    text: str = ""  # somewhere in the topic, the key, a header or the value


@dataclass(frozen=True, slots=True)
class Message:
    """One message as people see it."""

    position: str
    topic: str
    at: str
    value: Value
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def has(self, text: str) -> bool:
        """Whether a text is somewhere in it, in either case of letters."""
        fields = (self.topic, self.key, self.value.text, *(part for header in self.headers for part in header))
        return any(text.lower() in each.lower() for each in fields)


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest messages, the newest first; and from what they can be chosen."""

    messages: tuple[Message, ...] = ()
    topics: tuple[str, ...] = ()
    of: str = ""  # what was read
    note: str = ""
    scanned: int = 0


def unreadable(kind: str) -> str:
    """Why messages of a kind cannot be shown; empty if they can."""
    if kind in ("nats", "log", "memory"):
        return ""
    return _WHY.get(kind, "Headgate knows no way to read this kind back.")


@dataclass(slots=True)
class Tails:
    """Reads tails, and a stream that has not moved only once."""

    _known: dict[tuple[str, Wanted], tuple[int, Tail]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, destination: Destination, wanted: Wanted) -> Tail:
        if isinstance(destination, NatsDestination):
            return self._of_nats(destination, wanted)
        if isinstance(destination, LogDestination):
            return _of_log(destination, wanted)
        if isinstance(destination, MemoryDestination):
            return _of_memory(destination, wanted)
        return Tail(note="Headgate knows no way to read this kind back.")

    def _of_nats(self, destination: NatsDestination, wanted: Wanted) -> Tail:
        stream = destination.stream_name(wanted.stream) if wanted.stream else destination.options.stream
        key = (f"{destination.name}/{stream}", replace(wanted, stream=stream))
        with JetStream.open(replace(destination.options, connect_timeout_s=_CONNECT_S)) as jetstream:
            info = jetstream.stream_info(stream)
            if info is None:
                return Tail(of=stream, note="The stream does not exist yet: it is made with the first row.")
            with self._lock:
                at, known = self._known.get(key, (-1, Tail()))
            if at == info.last_sequence:
                return known
            found = _newest(jetstream, stream, range(info.last_sequence, info.first_sequence - 1, -1), wanted)
        read = replace(found, of=f"stream {stream}", topics=tuple(info.subjects))
        with self._lock:
            self._known[key] = (info.last_sequence, read)
            while len(self._known) > _MOST_KEPT:
                del self._known[next(iter(self._known))]
        return read


def _newest(jetstream: JetStream, stream: str, sequences: Sequence[int], wanted: Wanted) -> Tail:
    chosen: list[Message] = []
    scanned = 0
    is_filtered = bool(wanted.topic or wanted.text)
    for sequence in sequences[: _SCANNED if is_filtered else _SHOWN]:
        stored = jetstream.message(stream, sequence)
        scanned += 1
        if stored is None or (wanted.topic and not covers(wanted.topic, stored.subject)):
            continue
        message = _from_nats(stored)
        if not wanted.text or message.has(wanted.text):
            chosen.append(message)
        if len(chosen) == _SHOWN:
            break
    return Tail(tuple(chosen), scanned=scanned)


def _from_nats(stored: StoredMessage) -> Message:
    headers = tuple((name, _legible(value)) for name, value in stored.headers.fields)
    at = stored.time.replace("T", " ")[:23]
    return Message(str(stored.sequence), stored.subject, at, shown_value(stored.payload), headers=headers)


def _of_log(destination: LogDestination, wanted: Wanted) -> Tail:
    statements = resources.files(__package__)
    newest, all_topics = statements.joinpath("tail.sql").read_bytes(), statements.joinpath("topics.sql").read_bytes()
    with open_connection(destination.url, "headgate dashboard", _SETTINGS, timeout_s=_CONNECT_S) as connection:
        topics = [name for (name,) in connection.execute(all_topics)]
        topic = wanted.topic or (topics[0] if topics else "")
        rows = connection.execute(newest, {"topic": topic, "count": _SCANNED if wanted.text else _SHOWN}).fetchall()
    found = [_from_log(topic, row) for row in rows]
    messages = [each for each in found if not wanted.text or each.has(wanted.text)][:_SHOWN]
    note = "" if topics else "There is no topic yet: one is made with the first row."
    return Tail(tuple(messages), tuple(sorted(topics)), f"topic {topic}" if topic else "the log", note, len(found))


def _from_log(topic: str, row: tuple[Any, ...]) -> Message:
    partition, offset, key, value, headers, at = row
    shown = tuple((_legible(str(name)), _header(content)) for name, content in headers or ())
    return Message(f"{partition}:{offset}", topic, f"{at:%Y-%m-%d %H:%M:%S.%f}"[:23], shown_value(value),
                   shown_value(key).text if key is not None else "", shown)  # fmt: skip


def _header(value: Any) -> str:
    """A header's value as the log's functions give it: a text, or an object with what is none in base64."""
    return json.dumps(value) if isinstance(value, dict) else str(value or "")


def _legible(text: str) -> str:
    """Without what stands for bytes that are no text: a page cannot be sent with it."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _of_memory(destination: MemoryDestination, wanted: Wanted) -> Tail:
    kept = destination.messages
    newest = kept[: -_SCANNED - 1 : -1]
    found = [Message(each.message_id, each.topic, "", shown_value(each.payload)) for each in newest]
    topics = tuple(sorted({each.topic for each in newest}))
    chosen = [
        each
        for each in found
        if (not wanted.topic or each.topic == wanted.topic) and (not wanted.text or each.has(wanted.text))
    ]
    return Tail(tuple(chosen[:_SHOWN]), topics, f"the last {len(kept):,} rows in memory", scanned=len(found))
