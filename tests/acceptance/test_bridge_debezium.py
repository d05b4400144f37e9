"""A bridge in Debezium's format: the rows that are there first, then every change, and heartbeats if wanted."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded.postgres import PostgresServer
from tests.acceptance.conftest import Project
from tests.acceptance.test_bridge_gaps import as_bridge, nats_url, wait_until
from tests.integration.cdc.conftest import new_server, prepare
from tests.stock import STOCK_VERSION, needs_stock
from tests.streams import read_stream

__all__ = ["nats_url"]  # the fixture

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

UNAVAILABLE = "__debezium_unavailable_value"
ROWS = 30_000
STATEMENTS = [
    "insert into item values (%(key)s, 'n', repeat('x', 3000)) on conflict (id) do update set note = item.note || 'i'",
    "update item set note = left(note || 'u', 20) where id = %(key)s",
    "update item set body = repeat('y', 3000) where id = %(key)s",
    "delete from item where id = %(key)s",
    "insert into other values (%(key)s, 1) on conflict (id) do update set n = other.n + 1",
]


on_stock = pytest.mark.parametrize(
    "server", [pytest.param(STOCK_VERSION, marks=needs_stock)], indirect=True, ids=["pg15"]
)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostgresServer]:
    """The newest, or Debian's: what is different between them, the reader's and the snapshots' own tests look at."""
    (tmp_path / "server").mkdir()
    made = new_server(tmp_path / "server", getattr(request, "param", 18))
    made.start()
    prepare(made.url)
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(
            "drop table t; create table item (id int primary key, note text, body text);"
            "create table empty (id int primary key); create table other (id int primary key, n int);"
            "alter table item alter body set storage external;"
            f"insert into item select i, 'n', 'short' from generate_series(1, {ROWS}) i;"
            "insert into other select i, 0 from generate_series(1, 100) i;"
            "alter publication p add table item, empty, other".encode()
        )
    yield made
    made.stop()


class Writer(threading.Thread):
    """Random changes of some keys until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.over = threading.Event()
        self._url = url

    def run(self) -> None:
        rng = random.Random(7)
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self.over.wait(0.002):
                with connection.transaction():
                    for _ in range(rng.randint(1, 3)):
                        key = rng.choice([rng.randint(1, 200), rng.randint(ROWS - 200, ROWS + 200)])
                        connection.execute(rng.choice(STATEMENTS).encode(), {"key": key})


def arguments(url: str, nats: str, stream: str, *more: str) -> list[str]:
    return [
        *("bridge", "--slot", "s", "--pub", "p", "--port", "0", "--postgres", url, "--nats", nats, "--debezium"),
        *("--stream", stream, "--subject", f"{stream.lower()}.{{schema}}.{{table}}", *more),
    ]


def stream_events(nats: str, stream: str) -> list[dict[str, Any]]:
    found = [message.data for message in read_stream(nats, stream, 1)]
    return [json.loads(data) for data in found if data]


def fold(events: list[dict[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """What a consumer keeps that knows nothing but a table's key."""
    tables: dict[str, dict[int, dict[str, Any]]] = {"item": {}, "empty": {}, "other": {}}
    for event in events:
        if "op" not in event or event["op"] == "m":
            continue
        rows = tables[event["source"]["table"]]
        if event["op"] == "d":
            rows.pop(event["before"]["id"], None)
            continue
        row = event["after"]
        known = rows.get(row["id"], {})
        rows[row["id"]] = {name: known.get(name) if value == UNAVAILABLE else value for name, value in row.items()}
    return tables


def tables_of(server: PostgresServer) -> dict[str, dict[int, dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {}
    with psycopg.connect(server.url) as connection:
        for table in ("item", "empty", "other"):
            cursor = connection.execute(f"select to_jsonb(t) from {table} t".encode())
            found[table] = {row["id"]: row for (row,) in cursor}
    return found


def test_a_consumer_keyed_by_id_ends_equal_to_the_tables_under_load(
    project: Project, server: PostgresServer, nats_url: str
) -> None:
    stream = f"D{uuid4().hex[:8]}"
    run = arguments(as_bridge(server), nats_url, stream)
    writer = Writer(server.url)
    writer.start()
    try:
        first = project.run(*run, "--once", timeout_s=200)
        assert first.returncode == 0, first.stderr
    finally:
        writer.over.set()
        writer.join()
    last = project.run(*run, "--once", timeout_s=200)
    assert last.returncode == 0, last.stderr
    events = stream_events(nats_url, stream)
    reads = [event["op"] == "r" for event in events]
    count = sum(reads)
    assert reads == [True] * count + [False] * (len(reads) - count)
    assert count > ROWS
    marks = [event["source"]["snapshot"] for event in events[:count]]
    assert (marks[0], marks[-1]) == ("first", "last")
    assert [mark for mark in marks if mark != "true"] == [
        "first", "last_in_data_collection", "first_in_data_collection", "last",
    ]  # fmt: skip
    # The rows are those of the slot's own point: no change comes that they contain already.
    seen = {(event["source"]["table"], event["after"]["id"]) for event in events[:count]}
    first_changes: dict[tuple[str, int], str] = {}
    for event in events[count:]:
        row = event["after"] or event["before"]
        first_changes.setdefault((event["source"]["table"], row["id"]), event["op"])
    assert all((op == "c") == (key not in seen) for key, op in first_changes.items())
    assert len(first_changes) > 50
    assert fold(events) == tables_of(server)


@on_stock
def test_a_bridge_killed_in_its_snapshot_sends_the_rows_again(
    project: Project, server: PostgresServer, nats_url: str
) -> None:
    stream = f"D{uuid4().hex[:8]}"
    run = arguments(as_bridge(server), nats_url, stream)
    killed = project.run(*run, "--once", timeout_s=200, HEADGATE_FAILPOINT="pipeline.initial")
    assert killed.returncode != 0
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("delete from item where id % 7 = 0; update item set note = 'after' where id % 5 = 0")
    done = project.run(*run, "--once", timeout_s=200)
    assert done.returncode == 0, done.stderr
    again = project.run(*run, "--once", timeout_s=200)
    assert again.returncode == 0, again.stderr
    events = stream_events(nats_url, stream)
    assert sum(event["op"] == "r" and event["source"]["snapshot"] == "last" for event in events) == 1
    assert fold(events) == tables_of(server)


def test_heartbeats_and_no_snapshot(project: Project, server: PostgresServer, nats_url: str) -> None:
    stream = f"D{uuid4().hex[:8]}"
    more = ("--snapshot-mode", "no_data", "--heartbeat-interval-ms", "200")
    process = project.start(*arguments(as_bridge(server), nats_url, stream, *more))
    try:
        wait_until(lambda: process.poll() is not None or message_count(nats_url, stream) >= 3)
        assert process.poll() is None, process.communicate()
    finally:
        process.terminate()
        process.communicate(timeout=90)
    found = read_stream(nats_url, stream, 3)
    assert {message.subject for message in found} == {"__debezium-heartbeat.s"}
    delete_stream(nats_url, stream)  # no other one can take the subject of heartbeats
    times = [json.loads(message.data) for message in found]
    assert all(each.keys() == {"ts_ms"} for each in times)
    assert [each["ts_ms"] for each in times] == sorted(each["ts_ms"] for each in times)


def delete_stream(nats: str, stream: str) -> None:
    with JetStream.open(NatsOptions(url=nats, stream=stream, subjects=("x",))) as jetstream:
        jetstream.delete_stream(stream)


def message_count(nats: str, stream: str) -> int:
    options = NatsOptions(url=nats, stream=stream, subjects=("x",))
    with JetStream.open(options) as jetstream:
        info = jetstream.stream_info(stream)
        return info.last_sequence if info else 0
