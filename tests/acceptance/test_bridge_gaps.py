"""What a bridge does when its slot, its stream or its server is another one than before: refuse it, or tell of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from headgate.embedded import Stack
from headgate.embedded.postgres import PostgresServer
from tests.acceptance.conftest import HEADGATE, Project
from tests.cdc.standby import cut_off, promote, standby_of, two_hosts, wait_for_replay
from tests.integration.cdc.conftest import new_server, prepare
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Stack(tmp_path_factory.mktemp("nats"), postgres=False) as endpoints:
        assert endpoints.nats_url is not None
        yield endpoints.nats_url


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[PostgresServer]:
    (tmp_path / "primary").mkdir()
    server = new_server(tmp_path / "primary")
    server.start()
    prepare(server.url)
    yield server
    server.stop()


def command(url: str, nats_url: str, stream: str, *more: str) -> list[str]:
    return [
        *(HEADGATE, "bridge", "--slot", "s", "--pub", "p", "--port", "0", "--postgres", url, "--nats", nats_url),
        *("--stream", stream, "--subject", f"{stream.lower()}.{{schema}}.{{table}}.{{op}}", *more),
    ]


def once(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.run(*arguments[1:], "--once", timeout_s=200)


def as_bridge(server: PostgresServer) -> str:
    return server.url.replace("user=headgate", "user=bridge")


def events(nats_url: str, stream: str, expected: int) -> list[dict[str, Any]]:
    return [msgspec.msgpack.decode(message.data) for message in read_stream(nats_url, stream, expected)]


def ids(found: list[dict[str, Any]]) -> list[int]:
    return [event["data"]["id"] for event in found if event["operation"] == "INSERT"]


def gaps(found: list[dict[str, Any]]) -> list[str]:
    messages = [each["data"] for each in found if each["operation"] == "MESSAGE"]
    return [json.loads(each["content"])["reason"] for each in messages if each["prefix"] == "headgate.gap"]


def insert(server: PostgresServer, first: int, last: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("insert into t select g, 'x' from generate_series(%s::int, %s::int) g", [first, last])


def make_slot(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])


def wait_until(condition: Callable[[], bool], timeout_s: float = 150) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


def test_a_slot_that_was_dropped_is_refused_until_a_reset(
    project: Project, primary: PostgresServer, nats_url: str
) -> None:
    """And a second bridge on the same stream is refused, without confirming anything."""
    run = command(as_bridge(primary), nats_url, "DROPPED")
    make_slot(primary.url, "s")
    insert(primary, 1, 5)
    assert once(project, *run).returncode == 0
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute("select pg_drop_replication_slot('s')")
        insert(primary, 6, 10)
        refused = once(project, *run)
        assert refused.returncode == 5, refused.stderr
        assert "the slot is gone" in refused.stderr
        assert "--reset" in refused.stderr
        assert admin.execute("select 1 from pg_replication_slots").fetchone() is None
    make_slot(primary.url, "s")
    insert(primary, 11, 12)
    done = once(project, *run, "--reset")
    assert done.returncode == 0, done.stderr
    found = events(nats_url, "DROPPED", 8)
    assert (ids(found), gaps(found)) == ([1, 2, 3, 4, 5, 11, 12], ["slot"])

    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute("create database other")
    other = primary.url.replace("/headgate?", "/other?")
    prepare(other)
    second = [*command(other.replace("user=headgate", "user=bridge"), nats_url, "DROPPED"), "--data-dir", "other"]
    second[second.index("s")] = "s2"
    make_slot(other, "s2")
    with psycopg.connect(other, autocommit=True) as admin:
        where = "select confirmed_flush_lsn from pg_replication_slots where slot_name = 's2'"
        before = admin.execute(where).fetchone()
        admin.execute("insert into t values (77, 'of another database')")
        refused = once(project, *second)
        assert refused.returncode == 4, refused.stderr
        assert "somebody else writes to the stream" in refused.stderr
        assert admin.execute(where).fetchone() == before
    assert ids(events(nats_url, "DROPPED", 8)) == [1, 2, 3, 4, 5, 11, 12]


def test_a_new_primary_that_lacks_what_was_delivered(
    project: Project, primary: PostgresServer, nats_url: str, tmp_path: Path
) -> None:
    """Rows of the new primary have LSNs that the old one had used; they arrive, and consumers hear of the others."""
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute("select pg_create_physical_replication_slot('standby_slot')")
    standby = standby_of(primary, tmp_path / "standby", slot="standby_slot")
    run = command(two_hosts(primary, standby, "bridge"), nats_url, "FAILOVER", "--failover")
    with (tmp_path / "bridge.log").open("wb") as log:
        process = subprocess.Popen(run, cwd=project.directory, stdout=log, stderr=log, env={**os.environ})
    try:
        wait_until(lambda: has_slot(primary))
        insert(primary, 1, 10)
        wait_until(lambda: set(ids(stream_now(nats_url, "FAILOVER"))) >= set(range(1, 11)))
        wait_until(lambda: is_synced(primary, standby))
        with psycopg.connect(primary.url, autocommit=True) as admin:
            wait_for_replay(admin)
        cut_off(standby)
        insert(primary, 101, 150)
        wait_until(lambda: 150 in ids(stream_now(nats_url, "FAILOVER")))
        primary.kill()
        promote(standby)
        insert(standby, 201, 250)
        wait_until(lambda: 250 in ids(stream_now(nats_url, "FAILOVER")))
        found = stream_now(nats_url, "FAILOVER")
        wanted = [*range(1, 11), *range(101, 151), *range(201, 251)]
        assert [number for number in ids(found) if number in wanted] == wanted
        assert gaps(found) == ["timeline"]
        assert [each["msg_id"] for each in found] == sorted(each["msg_id"] for each in found)
    finally:
        process.terminate()
        process.wait(60)
        standby.stop()


def stream_now(nats_url: str, stream: str) -> list[dict[str, Any]]:
    return events(nats_url, stream, 0)


def has_slot(server: PostgresServer) -> bool:
    with psycopg.connect(server.url, autocommit=True) as admin:
        return (
            admin.execute("select 1 from pg_replication_slots where slot_name = 's' and active").fetchone() is not None
        )


def is_synced(primary: PostgresServer, standby: PostgresServer) -> bool:
    query = "select 1 from pg_replication_slots where slot_name = 's' and synced and not temporary"
    with psycopg.connect(primary.url, autocommit=True) as writer, psycopg.connect(standby.url) as reader:
        writer.execute("select pg_log_standby_snapshot()")
        return reader.execute(query).fetchone() is not None
