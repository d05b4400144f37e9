"""Events with a topic: how a record holds one, and the door for whoever wants some topics.

Over WebSocket (`/subscribe?topic=a&topic=b&cursor=123`) and as server-sent events (`/events`), each event is one line
of JSON. What it carries is `payload` if that is JSON itself, else `text`, else `base64`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from headgate.eventlog.doors import Entrance, Message, Refusal
from headgate.eventlog.records import MAX_SEQ, Record

__all__ = ["EVENT", "ORDERED_EVENT", "TopicDoor", "TopicEvent", "decode_event", "encode_event", "topic_uid"]

EVENT = 16  # a kind that the relay's do not meet
ORDERED_EVENT = 17  # one whose message id is above those of all before it, of its topic and origin

_MOST_TOPICS = 1000
_MOST_TOPIC_BYTES = 8192
_NO_MESSAGES: Sequence[Message] = ()
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class TopicEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The payload of such a record, as MessagePack."""

    topic: str
    message_id: str
    key: bytes | None
    time_us: int
    payload: bytes


encode_event = msgspec.msgpack.Encoder().encode
decode_event = msgspec.msgpack.Decoder(TopicEvent).decode


def topic_uid(topic: str) -> int:
    """The uid of a topic's records."""
    return int.from_bytes(blake2b(topic.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


class TopicDoor:
    """Every event, or those of some topics."""

    is_text = True

    def enter(self, query: Mapping[str, Sequence[str]]) -> Entrance:
        topics = frozenset(query.get("topic", ()))
        if len(topics) > _MOST_TOPICS or any(len(topic) > _MOST_TOPIC_BYTES for topic in topics):
            raise Refusal("InvalidRequest", f"at most {_MOST_TOPICS} topics")
        return Entrance(_number(query, "cursor"), _number(query, "last-event-id"), topics or None)

    def messages(self, record: Record) -> Sequence[Message]:
        if record.kind not in (EVENT, ORDERED_EVENT):
            return _NO_MESSAGES
        try:
            event = decode_event(record.payload)
        except msgspec.MsgspecError:
            return _NO_MESSAGES  # somebody else's use of the kind
        return (Message(event.topic, _as_json(record.seq, event)),)

    def wants(self, subject: Any, wanted: Any) -> bool:
        return subject in wanted

    def info(self, name: str, message: str) -> bytes | None:
        return json.dumps({"info": name, "message": message}).encode()

    def error(self, name: str, message: str) -> bytes | None:
        return json.dumps({"error": name, "message": message}).encode()


def _number(query: Mapping[str, Sequence[str]], name: str) -> int | None:
    given = query.get(name)
    if not given:
        return None
    text = given[-1].strip()
    if not text.removeprefix("-").isdecimal() or len(text) > len(str(MAX_SEQ)) + 1:
        raise Refusal("InvalidRequest", f"{name} is no sequence number")
    return max(0, int(text))


def _as_json(seq: int, event: TopicEvent) -> bytes:
    time = datetime.fromtimestamp(event.time_us / 1e6, UTC).isoformat(timespec="microseconds")
    head: dict[str, Any] = {"seq": seq, "topic": event.topic, "time": time, "id": event.message_id}
    if event.key is not None:
        head["key"] = event.key.decode(errors="replace")
    if _is_json(event.payload):
        start = json.dumps(head).encode()
        return b'%b, "payload": %b}' % (start[:-1], event.payload.translate(_LINE_BREAKS))
    try:
        head["text"] = event.payload.decode()
    except UnicodeDecodeError:
        head["base64"] = base64.b64encode(event.payload).decode()
    return json.dumps(head).encode()


def _is_json(payload: bytes) -> bool:
    try:
        payload.decode()
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
