"""Doors: what becomes of a record, and what may be asked for."""

from __future__ import annotations

import json

import pytest
from websockets.frames import Frame, Opcode

from headgate.eventlog import Record
from headgate.eventlog.doors import SSE, Entrance, Refusal, WebSocketFraming
from headgate.eventlog.topics import EVENT, TopicDoor, TopicEvent, encode_event, topic_uid

DOOR = TopicDoor()


def told(payload: bytes, key: bytes | None = None, topic: str = "t") -> dict[str, object]:
    event = TopicEvent(topic, "m-1", key, 1_700_000_000_000_001, payload)
    ((subject, data),) = DOOR.messages(Record(9, EVENT, topic_uid(topic), encode_event(event)))
    assert subject == topic
    assert b"\n" not in data
    found: dict[str, object] = json.loads(data)
    return found


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY], ids=["text", "binary"])
def test_frames_are_those_of_the_protocol(size: int, opcode: Opcode) -> None:
    data = b"x" * size
    assert WebSocketFraming(opcode).event(1, data) == Frame(opcode, data).serialize(mask=False)


def test_an_event_of_a_stream_has_its_number_as_id() -> None:
    assert SSE.event(12, b"{}") == b"id: 12\ndata: {}\n\n"


def test_json_is_passed_on_as_it_is() -> None:
    event = told(b'{"a": [1,\r\n 2]}', b"k")
    assert event == {
        "seq": 9,
        "topic": "t",
        "time": "2023-11-14T22:13:20.000001+00:00",
        "id": "m-1",
        "key": "k",
        "payload": {"a": [1, 2]},
    }


@pytest.mark.parametrize(
    ("payload", "field", "value"),
    [
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b'{"a":', "text", '{"a":'),
        (b"NaN", "text", "NaN"),
        (b"[" * 5000, "text", "[" * 5000),
        ("ä\n".encode(), "text", "ä\n"),
        (b'"\xff"', "base64", "Iv8i"),
        (b"\xff\x00", "base64", "/wA="),
    ],
    ids=["empty", "plain", "half", "NaN", "deep", "two lines", "almost JSON", "bytes"],
)
def test_the_rest_is_text_or_bytes(payload: bytes, field: str, value: str) -> None:
    assert told(payload)[field] == value


def test_other_records_are_nothing_for_this_door() -> None:
    assert list(DOOR.messages(Record(1, 1, 0, b"..."))) == []
    assert list(DOOR.messages(Record(1, EVENT, 0, b"no event"))) == []


def test_what_may_be_asked_for() -> None:
    assert DOOR.enter({}) == Entrance()
    assert DOOR.enter({"topic": ["a", "b"], "cursor": ["12"]}) == Entrance(12, None, frozenset("ab"))
    assert DOOR.enter({"cursor": ["-5"]}) == Entrance(0)
    assert DOOR.enter({"last-event-id": ["7"]}) == Entrance(None, 7)


@pytest.mark.parametrize("cursor", ["abc", "", "1.5", "9" * 30, "٣٣x", "--1"])
def test_a_cursor_is_a_number(cursor: str) -> None:
    with pytest.raises(Refusal, match="InvalidRequest"):
        DOOR.enter({"cursor": [cursor]})


def test_there_are_only_so_many_topics() -> None:
    with pytest.raises(Refusal):
        DOOR.enter({"topic": [str(number) for number in range(1001)]})
