"""The newest messages of a destination, for the event viewer. Of kinds that cannot be read back, it says so.

A kind is readable if headgate can ask for its newest messages without becoming a consumer that others would notice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources

from headgate.control.dashboard.messages import Message, legible, log_messages
from headgate.control.dashboard.shown import shown_value
from headgate.control.dashboard.stores import open_store
from headgate.destinations.base import Destination
from headgate.destinations.log import LogDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import JetStream, NatsDestination, StoredMessage
from headgate.wire.nats.subject import covers

__all__ = ["Tail", "Tails", "Wanted", "unreadable"]

_SHOWN = 20
_SCANNED = 200  # of the newest, where only some are wanted
_MOST_KEPT = 32
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
    headers = tuple((name, legible(value)) for name, value in stored.headers.fields)
    at = stored.time.replace("T", " ")[:23]
    return Message(str(stored.sequence), stored.subject, at, shown_value(stored.payload), headers=headers)


def _of_log(destination: LogDestination, wanted: Wanted) -> Tail:
    all_topics = resources.files(__package__).joinpath("topics.sql").read_bytes()
    with open_store(destination.url) as connection:
        topics = [name for (name,) in connection.execute(all_topics)]
        topic = wanted.topic or (topics[0] if topics else "")
        found = log_messages(connection, topic, _SCANNED if wanted.text else _SHOWN)
    messages = [each for each in found if not wanted.text or each.has(wanted.text)][:_SHOWN]
    note = "" if topics else "There is no topic yet: one is made with the first row."
    return Tail(tuple(messages), tuple(sorted(topics)), f"topic {topic}" if topic else "the log", note, len(found))


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
