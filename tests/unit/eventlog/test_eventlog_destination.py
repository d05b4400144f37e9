"""The destination: what the contract of all kinds does not ask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config.destinations import EventLogDestinationSection
from headgate.config.models import NatsSection
from headgate.destinations.base import Lane, SendResult
from headgate.destinations.context import DestinationContext
from headgate.destinations.eventlog import EventLogDestination
from headgate.destinations.eventlog.build import build
from headgate.eventlog import LogOptions, LogReader
from headgate.eventlog.topics import TopicEvent, decode_event
from headgate.model import ConfigError, DataError, Position


def rows(first: int, count: int, payload: bytes = b"x", topic: str = "t", origin: str = "db") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array([topic] * count, pa.string()),
            "_message_id": [f"{origin}-{Position(number)}" for number in range(first, first + count)],
            "_payload": pa.array([payload] * count, pa.binary()),
            "_partition_key": pa.array([b"k"] * count, pa.binary()),
        }
    )


def deliver(destination: EventLogDestination, *batches: pa.RecordBatch, lane: Lane | None = None) -> SendResult:
    with destination.open(lane or Lane()) as sender:
        for batch in batches:
            sender.send(batch)
        return sender.finish()


def events(path: Path) -> list[TopicEvent]:
    with LogReader(path) as reader:
        return [decode_event(record.payload) for records in reader.read(0) for record in records]


def test_an_event_has_all_of_its_row(tmp_path: Path) -> None:
    deliver(EventLogDestination("d", str(tmp_path)), rows(1, 1, b"{}"), lane=Lane("s"))
    (event,) = events(tmp_path)
    assert (event.topic, event.message_id, event.key, event.payload) == ("s.t", f"db-{Position(1)}", b"k", b"{}")


@pytest.mark.parametrize("left", ["nothing", "an older file", "noise"])
def test_a_replay_is_known_although_the_note_of_it_was_lost(tmp_path: Path, left: str) -> None:
    destination = EventLogDestination("d", str(tmp_path), options=LogOptions(segment_events=700), exclusive=True)
    deliver(destination, rows(0, 3000))
    note = tmp_path / "topics.json"
    old = note.read_bytes()
    deliver(destination, rows(3000, 2500))
    assert note.read_bytes() != old
    note.unlink()
    if left != "nothing":
        note.write_bytes(old if left == "an older file" else b"{]")
    assert deliver(destination, rows(0, 5510)).duplicates == 5500
    assert [event.message_id for event in events(tmp_path)] == [f"db-{Position(number)}" for number in range(5510)]


def test_a_replay_is_known_although_its_events_are_gone(tmp_path: Path) -> None:
    destination = EventLogDestination("d", str(tmp_path), options=LogOptions(2, max_bytes=1), exclusive=True)
    deliver(destination, rows(0, 10))
    assert len(events(tmp_path)) < 10
    assert deliver(destination, rows(0, 10)).duplicates == 10


def test_dead_letters_are_neither_old_nor_make_others_old(tmp_path: Path) -> None:
    destination = EventLogDestination("d", str(tmp_path), exclusive=True)
    deliver(destination, rows(10, 5))
    late = Lane(is_late=True)
    assert deliver(destination, rows(0, 3), lane=late).duplicates == 0
    assert deliver(destination, rows(100, 3), lane=late).duplicates == 0
    assert deliver(destination, rows(15, 5)).duplicates == 0
    assert len(events(tmp_path)) == 16


def test_origins_stay_apart(tmp_path: Path) -> None:
    destination = EventLogDestination("d", str(tmp_path), exclusive=True)
    deliver(destination, rows(10, 5))
    assert deliver(destination, rows(0, 5, origin="other")).duplicates == 0


def test_tasks_take_turns(tmp_path: Path) -> None:
    destination = EventLogDestination("d", str(tmp_path))

    def send(task: int) -> SendResult:
        batches = [rows(1000 * task + number, 50, b"x" * 1000, f"t{task}") for number in range(0, 500, 50)]
        return deliver(destination, *batches, lane=Lane(task=task))

    with ThreadPoolExecutor(4) as threads:
        assert sum(result.rows for result in threads.map(send, range(4))) == 2000
    found = events(tmp_path)
    for task in range(4):
        ids = [event.message_id for event in found if event.topic == f"t{task}"]
        assert ids == [f"db-{Position(1000 * task + number)}" for number in range(500)]


def test_several_tasks_have_no_order(tmp_path: Path) -> None:
    destination = EventLogDestination("d", str(tmp_path), exclusive=True)
    with pytest.raises(ConfigError, match="no common order"), destination.open(Lane(task=1)):
        pass


def test_a_row_that_is_too_large_is_named(tmp_path: Path) -> None:
    large = rows(0, 1, bytes(17 << 20), "large")
    result = deliver(EventLogDestination("d", str(tmp_path)), large, rows(1, 2))
    assert [(failure["topic"], failure["rows"]) for failure in result.failures] == [("large", 1)]
    assert [event.topic for event in events(tmp_path)] == ["t", "t"]
    with pytest.raises(DataError, match="MiB"):
        deliver(EventLogDestination("d", str(tmp_path), exclusive=True), large)


def test_it_is_made_from_the_configuration(tmp_path: Path) -> None:
    section = EventLogDestinationSection(type="eventlog", max_age="1h", max_bytes="1GiB", segment_events=5)
    context = DestinationContext("d", "p", tmp_path, NatsSection(), spark_master="local[2]", is_alone=True)
    made = build(section, context)
    assert made.path == str(tmp_path / "eventlogs" / "d")
    assert (made.exclusive, made.options) == (True, LogOptions(5, 256 << 20, 3600.0, 1 << 30))
    with pytest.raises(ConfigError, match="tasks on the machine"):
        build(section, replace(context, spark_master="spark://host:7077"))


def test_what_others_can_reach_needs_a_token() -> None:
    with pytest.raises(ValueError, match="token is required"):
        EventLogDestinationSection(type="eventlog", host="0.0.0.0")
