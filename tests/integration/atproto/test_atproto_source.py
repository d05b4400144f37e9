"""The `atproto` source against a relay on a real socket: what is kept, what comes again, and what is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.demo.network.repository import Repository, create, delete, update
from headgate.eventlog.writer import Entry, LogOptions, LogWriter
from headgate.model import HeadgateError, Position, StateError
from headgate.sources.atproto.datasource import AtprotoStreamReader
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.atproto.places import SpoolPlace
from headgate.sources.atproto.subscription import Subscription
from headgate.spool.spool import Spool
from headgate.wire.atproto.logged import logged
from tests.integration.atproto.relay import SmallRelay, small_relay

NOW_US = 1_700_000_000_000_000
POST = "app.bsky.feed.post"


@pytest.fixture
def relay() -> Iterator[SmallRelay]:
    with small_relay() as made:
        yield made


def commits(count: int, first: int = 1, name: str = "alice") -> list[bytes]:
    repo = Repository(name, "pds.example")
    writes = [[create(f"{POST}/{n}", {"$type": POST, "n": n})] for n in range(count)]
    return [repo.commit(write, seq=first + n, now_us=NOW_US + n) for n, write in enumerate(writes)]


def options(relay: SmallRelay, directory: Path, **others: Any) -> AtprotoSourceOptions:
    return AtprotoSourceOptions(url=relay.url, spool=str(directory), starting_offsets="earliest", **others)


@contextmanager
def subscribed(wanted: AtprotoSourceOptions) -> Iterator[Subscription]:
    subscription = Subscription(wanted)
    try:
        yield subscription
    finally:
        subscription.stop()


def wait_for(place: SpoolPlace, count: int) -> None:
    """The subscription is another thread; its only sign to readers is the mark in the spool."""
    tick = threading.Event()
    for _ in range(1000):
        if (place.end() or 0) >= count:
            return
        tick.wait(0.02)
    raise AssertionError(f"only {place.end()} of {count} events came")


def rows_of(wanted: AtprotoSourceOptions, start: int, end: int) -> list[dict[str, Any]]:
    reader = AtprotoStreamReader(wanted)
    parts = reader.partitions({"next": start}, {"next": end})
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_every_event_is_a_row_per_op_or_a_row_of_its_own(relay: SmallRelay, tmp_path: Path) -> None:
    repo = Repository("bob", "pds.example")
    writes = [create(f"{POST}/a", {"$type": POST, "raw": b"ab"}), create("app.bsky.feed.like/b", {"n": 1})]
    relay.add(
        repo.identity(seq=1, now_us=NOW_US),
        repo.account(seq=2, now_us=NOW_US, active=False, status="deactivated"),
        repo.commit(writes, seq=5, now_us=NOW_US),
        repo.commit([update(f"{POST}/a", {"n": 2}), delete("app.bsky.feed.like/b")], seq=6, now_us=NOW_US + 1),
        repo.sync(seq=9, now_us=NOW_US),
    )
    wanted = options(relay, tmp_path)
    with subscribed(wanted):
        wait_for(SpoolPlace(tmp_path), 5)
    rows = rows_of(wanted, 0, 5)
    assert [(r["kind"], r["collection"], r["rkey"], r["action"], r["_op"]) for r in rows] == [
        ("identity", "identity", None, None, "insert"),
        ("account", "account", None, None, "insert"),
        ("commit", POST, "a", "create", "insert"),
        ("commit", "app.bsky.feed.like", "b", "create", "insert"),
        ("commit", POST, "a", "update", "update"),
        ("commit", "app.bsky.feed.like", "b", "delete", "delete"),
        ("sync", "sync", None, None, "insert"),
    ]
    positions = [Position.parse(row["_position"])[:2] for row in rows]
    assert positions == [
        (1, 0),
        (2, 0),
        (5, 0),
        (5, 1),
        (6, 0),
        (6, 1),
        (9, 0),
    ]
    assert json.loads(rows[1]["record"]) == {"active": False, "status": "deactivated"}
    assert json.loads(rows[2]["record"]) == {"$type": POST, "raw": {"$bytes": "YWI"}}
    assert rows[5]["record"] is None
    assert rows[5]["cid"] is None
    assert {r["did"] for r in rows} == {repo.did}
    assert rows[0]["time"].year == 2023


def test_a_connection_that_ends_is_taken_up_where_it_was(relay: SmallRelay, tmp_path: Path) -> None:
    frames = commits(6)
    relay.add(*frames[:3])
    wanted = options(relay, tmp_path)
    with subscribed(wanted):
        wait_for(SpoolPlace(tmp_path), 3)
        relay.cut()
        relay.add(*frames[3:5])
        wait_for(SpoolPlace(tmp_path), 5)
    relay.add(frames[5])
    with subscribed(wanted):  # as after a restart
        wait_for(SpoolPlace(tmp_path), 6)
    assert relay.cursors == [0, 3, 5]
    assert [row["seq"] for row in rows_of(wanted, 0, 6)] == [1, 2, 3, 4, 5, 6]


def test_what_is_delivered_is_let_go_and_the_place_is_still_known(relay: SmallRelay, tmp_path: Path) -> None:
    relay.add(*commits(3))
    with subscribed(options(relay, tmp_path)):
        wait_for(SpoolPlace(tmp_path), 3)
    SpoolPlace(tmp_path).deliver(3)
    spool = Spool(tmp_path)
    spool.release(all_of_it=True)
    spool.close()
    relay.add(*commits(1, first=7, name="carol"))
    with subscribed(options(relay, tmp_path)):
        wait_for(SpoolPlace(tmp_path), 4)
    assert relay.cursors[-1] == 3


def test_events_that_the_relay_no_longer_has_stop_the_stream(relay: SmallRelay, tmp_path: Path) -> None:
    relay.add(*commits(2))
    wanted = options(relay, tmp_path)
    with subscribed(wanted):
        wait_for(SpoolPlace(tmp_path), 2)
    relay.outdated()
    with subscribed(wanted) as subscription:
        subscription._thread.join(20)
        assert not subscription.running
    reader = AtprotoStreamReader(replace(wanted, confirm="pipeline"))
    with pytest.raises(StateError, match="no longer has the events after 2"):
        reader.latestOffset({"next": 2}, reader.getDefaultReadLimit())
    relay.add(*commits(1, first=9, name="carol"))
    with subscribed(replace(wanted, fail_on_data_loss=False)):
        wait_for(SpoolPlace(tmp_path), 3)
    assert reader.latestOffset({"next": 2}, reader.getDefaultReadLimit()) == {"next": 3}


def test_outside_of_a_pipeline_the_reader_subscribes_and_confirms(relay: SmallRelay, tmp_path: Path) -> None:
    relay.add(*commits(3))
    reader = AtprotoStreamReader(options(relay, tmp_path))
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"next": 0}, limit)["next"] in range(4)
    try:
        wait_for(SpoolPlace(tmp_path), 3)
        assert reader.latestOffset({"next": 0}, limit) == {"next": 3}
        assert reader.latestOffset({"next": 3}, limit) == {"next": 3}
        assert reader.partitions({"next": 0}, {"next": 3}) == []  # delivered, and perhaps gone
    finally:
        reader.stop()


@pytest.mark.parametrize("tolerant", [False, True], ids=["strict", "tolerant"])
def test_a_relay_that_counts_anew_is_never_taken_for_the_same(
    relay: SmallRelay, tmp_path: Path, tolerant: bool
) -> None:
    relay.add(*commits(1))
    wanted = options(relay, tmp_path, fail_on_data_loss=not tolerant)
    with subscribed(wanted):
        wait_for(SpoolPlace(tmp_path), 1)
    relay.future()
    with subscribed(wanted) as subscription:
        subscription._thread.join(20)
        assert subscription.state == "failed"


def test_the_log_of_a_relay_is_read_file_by_file(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=4)) as log:
        log.append_all([Entry(1, 1, logged(NOW_US, frame)) for frame in commits(10)])
    wanted = AtprotoSourceOptions(path=str(tmp_path), starting_offsets="earliest", min_partitions=2)
    reader = AtprotoStreamReader(wanted)
    assert reader.initialOffset() == {"next": 1}
    assert reader.latestOffset({"next": 1}, reader.getDefaultReadLimit()) == {"next": 11}
    assert len(reader.partitions({"next": 2}, {"next": 11})) == 3
    assert [row["seq"] for row in rows_of(wanted, 2, 10)] == list(range(2, 10))
    latest = AtprotoStreamReader(AtprotoSourceOptions(path=str(tmp_path)))
    assert latest.initialOffset() == {"next": 11}
    with pytest.raises(StateError, match="the checkpoint stands at event 12"):
        reader.latestOffset({"next": 12}, reader.getDefaultReadLimit())


def test_files_of_the_log_that_are_gone_are_missed(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=4)) as log:
        log.append_all([Entry(1, 1, logged(NOW_US, frame)) for frame in commits(10)])
    (tmp_path / "evts-0").unlink()
    with pytest.raises(StateError, match="are gone before they were read"):
        rows_of(AtprotoSourceOptions(path=str(tmp_path)), 2, 10)
    tolerant = AtprotoSourceOptions(path=str(tmp_path), fail_on_data_loss=False)
    assert [row["seq"] for row in rows_of(tolerant, 2, 10)] == list(range(5, 10))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"url": "ws://a", "path": "/b"},
        {"url": "ws://a"},
        {"url": "http://a", "spool": "s"},
        {"path": "p", "minPartitions": "0"},
        {"url": "ws://a", "spool": "s", "maxSpoolBytes": "1"},
    ],
    ids=["nothing", "both", "no-spool", "scheme", "no-task", "small-spool"],
)
def test_options_that_do_not_fit_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(HeadgateError):
        AtprotoSourceOptions.from_spark(wrong)
