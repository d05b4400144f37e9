"""Streams that are wrong in one place only: fold or comparison must find each of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tests.cdc import Connection, Fold, FoldError, compare, identities

from .conftest import Recording

Events: TypeAlias = list[dict[str, Any]]
Judge: TypeAlias = Callable[[Events], list[str]]

BODY = ("operation", "data", "old", "schema", "table", "relation_id", "subject", "lsn")


@pytest.fixture
def judge(recording: Recording, connect: Callable[[], Connection]) -> Judge:
    """What is wrong with a stream; nothing, if it is right."""
    connection = connect()
    keys = identities(connection, recording.shop.publication)

    def judged(events: Events) -> list[str]:
        try:
            return compare(Fold(keys).feed_all(events), connection)
        except FoldError as error:
            return [str(error)]

    return judged


def places(events: Events, count: int = 25) -> list[int]:
    """Random places, always with the first, the last, and the end of a transaction among them."""
    ends = [at for at in range(len(events) - 1) if events[at + 1]["ordinal"] == 0]
    rng = random.Random(1)
    return [0, len(events) - 1, *rng.sample(ends, 5), *rng.sample(range(len(events)), count)]


def row_of(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["schema"], event["table"], event["data"].get("id")


def last_about(events: Events, wanted: Callable[[int], bool]) -> int:
    """The last event so wanted that is also the last one about its row, and whose row was not truncated later."""
    touched: set[tuple[Any, ...]] = set()
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if event["operation"] == "TRUNCATE":
            touched.add((event["schema"], event["table"]))
        if row_of(event) not in touched and row_of(event)[:2] not in touched and wanted(at):
            return at
        touched |= {row_of(event), (event["schema"], event["table"], event.get("old", {}).get("id"))}
    raise AssertionError("the recording has no such event")


def previous(events: Events, at: int) -> int:
    """The event before that is about the same row."""
    return max((other for other in range(at) if row_of(events[other]) == row_of(events[at])), default=0)


def is_telling(events: Events, at: int, table: str) -> bool:
    """An UPDATE of a table's row, the second at least, whose values the update before would undo."""
    event, before = events[at], events[previous(events, at)]
    if (event["schema"], event["table"], event["operation"]) != ("recorded", table, "UPDATE") or "old" in event:
        return False
    return before["operation"] == "UPDATE" and repr({**event["data"], **before["data"]}) != repr(event["data"])


def with_body_of(event: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The event's position with another event's contents, as from a bridge that mixes rows before it numbers them."""
    kept = {name: value for name, value in event.items() if name != "old"}
    return {**kept, **{name: other[name] for name in BODY if name in other}}


def test_the_recording_itself_is_right(recording: Recording, judge: Judge) -> None:
    assert judge(recording.events) == []


def test_a_missing_event_is_found_wherever_it_is(recording: Recording, judge: Judge) -> None:
    for at in places(recording.events):
        broken = recording.events[:at] + recording.events[at + 1 :]
        assert judge(broken) != [], recording.events[at]


def test_a_missing_transaction_is_found(recording: Recording, judge: Judge) -> None:
    for at in places(recording.events, 10):
        gone = recording.events[at]["commit_lsn"]
        assert judge([event for event in recording.events if event["commit_lsn"] != gone]) != []


def test_a_missing_event_is_found_even_if_the_rest_is_numbered_anew(recording: Recording, judge: Judge) -> None:
    events = recording.events
    at = last_about(events, lambda number: is_telling(events, number, "sample"))
    ends = (place for place in range(at + 1, len(events)) if events[place]["ordinal"] == 0)
    end = next(ends, len(events))
    shifted = [with_body_of(events[place], events[place + 1]) for place in range(at, end - 1)]
    assert judge(events[:at] + shifted + events[end:]) != []


def test_a_duplicate_is_found_wherever_it_is(recording: Recording, judge: Judge) -> None:
    for at in places(recording.events):
        once = recording.events[: at + 1]
        assert "duplicate" in judge([*once, recording.events[at], *recording.events[at + 1 :]])[0]
        assert "duplicate" in judge([*recording.events, recording.events[at]])[0]


def test_a_transaction_sent_again_under_another_position_is_found(recording: Recording, judge: Judge) -> None:
    first = [event for event in recording.events if event["commit_lsn"] == recording.events[0]["commit_lsn"]]
    again = [
        {
            **event,
            "commit_lsn": "FFFF/0",
            "msg_id": f"{event['msg_id'].partition('-')[0]}-0000FFFF00000000-{number:08X}",
        }
        for number, event in enumerate(first)
    ]
    assert "already" in judge([*recording.events, *again])[0]


def test_two_swapped_events_are_found(recording: Recording, judge: Judge) -> None:
    for at in places(recording.events):
        at = min(at, len(recording.events) - 2)
        broken = recording.events.copy()
        broken[at], broken[at + 1] = broken[at + 1], broken[at]
        assert judge(broken) != []


@pytest.mark.parametrize("table", ["document", "sample"])
def test_two_changes_of_one_key_in_the_wrong_order_are_found(recording: Recording, judge: Judge, table: str) -> None:
    """Their positions are right, only the rows are mixed up."""
    events = recording.events
    second = last_about(events, lambda number: is_telling(events, number, table))
    first = previous(events, second)
    broken = events.copy()
    broken[first] = with_body_of(events[first], events[second])
    broken[second] = with_body_of(events[second], events[first])
    assert judge(broken) != [], (events[first], events[second])


def test_an_unchanged_large_value_as_null_is_found(recording: Recording, judge: Judge) -> None:
    def unchanged(at: int) -> bool:
        event = broken[at]
        return event["table"] == "document" and event["operation"] == "UPDATE" and "body" not in event["data"]

    broken = copy.deepcopy(recording.events)
    broken[last_about(broken, unchanged)]["data"]["body"] = None
    (line,) = judge(broken)
    assert "'body' is " in line
    assert "None in the stream" in line


@pytest.mark.parametrize(
    ("table", "column", "wrong"),
    [
        ("sample", "price", lambda value: f"{value}0"),
        ("sample", "ratio", lambda value: value + 1),
        ("sample", "numbers", lambda value: str(value)),
        ("sample", "at", lambda value: value.replace("Z", "+00:00")),
        ("sample", "raw", lambda value: value + b"\0"),
        ("sample", "ok", lambda value: int(value)),
        ("sample", "code", lambda value: value + " "),
        ("document", "body", lambda value: value[:-1]),
        ("account", "balance", lambda value: float(value)),
    ],
)
def test_a_wrong_value_is_found(
    recording: Recording, judge: Judge, table: str, column: str, wrong: Callable[[Any], Any]
) -> None:
    def can_be_wrong(at: int) -> bool:
        value = broken[at]["data"].get(column)
        is_here = (broken[at]["schema"], broken[at]["table"]) == ("recorded", table)
        return is_here and value is not None and repr(wrong(value)) != repr(value)

    broken = copy.deepcopy(recording.events)
    row = broken[last_about(broken, can_be_wrong)]["data"]
    row[column] = wrong(row[column])
    (line,) = judge(broken)
    assert f"{column!r} is " in line


def test_a_row_too_many_or_too_few_without_a_key_is_found(recording: Recording, judge: Judge) -> None:
    at = max(
        number
        for number, event in enumerate(recording.events)
        if (event["schema"], event["table"], event["operation"]) == (recording.shop.odd_schema, "account", "INSERT")
    )
    broken = copy.deepcopy(recording.events)
    broken[at]["data"]["grp"] = 77
    assert judge(broken) != []


def test_a_truncate_of_another_table_is_found(recording: Recording, judge: Judge) -> None:
    truncate = next(event for event in reversed(recording.events) if event["operation"] == "TRUNCATE")
    at = recording.events.index(truncate)
    broken = copy.deepcopy(recording.events)
    broken[at] |= {"schema": "recorded", "table": "ledger"}
    assert judge(broken) != []
