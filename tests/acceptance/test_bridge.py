"""The bridge as a user runs it: real PostgreSQL, real NATS, a role that may do next to nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil
import psycopg
import pytest
from nats.aio.msg import Msg

from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Stack
from tests.acceptance.conftest import HEADGATE, Project
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FAILPOINTS = (
    "reader.spooled",
    "sender.sending",
    "pipeline.sent",
    "pipeline.persisted",
    "pipeline.confirmed",
    "reader.confirming",
)
# A batch that follows its source ends with the bridge; what it has delivered is recorded meanwhile.
AT_THE_END = ("pipeline.sent", "pipeline.persisted", "pipeline.confirmed")


@dataclass
class Bridge:
    """One bridge on one slot; every start is a new process on the same data directory."""

    project: Project
    stack: Stack
    slot: str

    def command(self, *more: str) -> list[str]:
        endpoints = self.stack.endpoints
        assert endpoints.postgres_url is not None
        assert endpoints.nats_url is not None
        url = endpoints.postgres_url.replace("user=headgate", "user=bridge")
        return [
            *(HEADGATE, "bridge", "--slot", self.slot, "--pub", self.slot, "--port", "0", "--stream", self.slot),
            *("--subject", f"{self.slot}.{{schema}}.{{table}}.{{op}}"),
            *("--postgres", url, "--nats", endpoints.nats_url, *more),
        ]

    @property
    def nats_url(self) -> str:
        url = self.stack.endpoints.nats_url
        assert url is not None
        return url

    def start(self, *more: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*more),
            cwd=self.project.directory,
            env={**os.environ, **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def once(self, *more: str) -> None:
        """Deliver what is there, and end."""
        process = self.start("--once", *more)
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors

    def messages(self, expected: int) -> list[Msg]:
        return read_stream(self.stack.endpoints.nats_url, self.slot, expected)

    def status(self) -> dict[str, Any] | None:
        """What `/status` says, or None until it has started."""
        try:
            path = self.project.directory / f".headgate/bridge-{self.slot}/run/control.json"
            url = json.loads(path.read_text())["url"]
            with urllib.request.urlopen(f"{url}/status", timeout=5) as response:
                answer: dict[str, Any] = json.load(response)
                return answer if answer["phase"] == "running" else None
        except (OSError, ValueError):
            return None


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("bridge"), durable=False)
    stack.start()
    assert stack.endpoints.postgres_url is not None
    with psycopg.connect(stack.endpoints.postgres_url, autocommit=True) as admin:
        admin.execute("create role bridge login replication")
    yield stack
    stack.stop()


@pytest.fixture
def admin(stack: Stack) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    assert stack.endpoints.postgres_url is not None
    with psycopg.connect(stack.endpoints.postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def bridge(project: Project, stack: Stack, admin: psycopg.Connection[Any], request: pytest.FixtureRequest) -> Bridge:
    slot = f"b{abs(hash(request.node.nodeid)) % 10**9}"
    admin.execute(f"create table {slot} (id bigint primary key, note text, amount numeric)".encode())
    admin.execute(f"grant select on {slot} to bridge".encode())
    admin.execute(f"create publication {slot} for table {slot}".encode())
    return Bridge(project, stack, slot)


def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def insert(admin: psycopg.Connection[Any], table: str, first: int, count: int) -> None:
    admin.execute(
        f"insert into {table} select g, 'note ' || g, g * 1.10 from generate_series(%s::int, %s::int) g".encode(),
        [first, first + count - 1],
    )


def make_slot(admin: psycopg.Connection[Any], bridge: Bridge) -> None:
    admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [bridge.slot])


def test_events_reach_any_nats_client(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    make_slot(admin, bridge)
    with admin.transaction():
        insert(admin, bridge.slot, 1, 3)
        admin.execute(f"update {bridge.slot} set note = 'changed' where id = 2".encode())
        admin.execute(f"delete from {bridge.slot} where id = 1".encode())
    admin.execute(f"truncate {bridge.slot}".encode())
    bridge.once("--json")
    messages = bridge.messages(5)
    events = [json.loads(message.data) for message in messages]
    assert [event["operation"] for event in events] == ["INSERT"] * 3 + ["UPDATE", "DELETE", "TRUNCATE"]
    assert events[0]["data"] == {"id": 1, "note": "note 1", "amount": "1.10"}
    assert messages[3].subject == f"{bridge.slot}.public.{bridge.slot}.update"
    assert [event["ordinal"] for event in events] == [0, 1, 2, 3, 4, 0]
    for message, event in zip(messages, events, strict=True):
        assert message.headers is not None
        assert message.headers["Nats-Msg-Id"] == event["msg_id"]
        assert message.subject == event["subject"]


def test_a_clean_stop_confirms_everything_and_a_restart_repeats_nothing(
    bridge: Bridge, admin: psycopg.Connection[Any]
) -> None:
    process = bridge.start()
    wait_until(
        lambda: (s := bridge.status()) is not None and s["pipelines"][0]["source_details"].get("reader") == "streaming"
    )
    insert(admin, bridge.slot, 1, 100)
    committed = admin.execute("select pg_current_wal_lsn()").fetchone()
    assert committed is not None
    wait_until(lambda: (s := bridge.status()) is not None and s["pipelines"][0]["rows_total"] == 100)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "100 rows in" in errors
    bridge.once()
    events = [msgspec.msgpack.decode(message.data) for message in bridge.messages(100)]
    assert [event["data"]["id"] for event in events] == list(range(1, 101))
    row = admin.execute(
        "select confirmed_flush_lsn >= %s from pg_replication_slots where slot_name = %s",
        [committed[0], bridge.slot],
    ).fetchone()
    assert row == (True,)


@pytest.mark.parametrize("trigger", ["realtime", "batch"])
def test_a_crash_anywhere_loses_nothing_and_repeats_nothing(
    bridge: Bridge, admin: psycopg.Connection[Any], trigger: str
) -> None:
    """One bridge after the other dies in another place; the last one delivers the rest."""
    make_slot(admin, bridge)
    total = 0
    follows = trigger == "realtime"
    # The reader and the senders are the same either way; each start takes its time.
    for place in (*FAILPOINTS, "pipeline.recorded") if follows else AT_THE_END:
        for _ in range(5):
            insert(admin, bridge.slot, total, 1000)
            total += 1000
        process = bridge.start("--trigger", trigger, HEADGATE_FAILPOINT=place)
        if place.startswith("pipeline."):
            if follows and place in AT_THE_END:
                wait_until(lambda total=total: delivered(bridge) == total)  # type: ignore[misc]
                insert(admin, bridge.slot, total, 1)  # followed, not planned
                total += 1
                wait_until(lambda total=total: delivered(bridge) == total)  # type: ignore[misc]
                process.terminate()
            assert process.wait(120) == -signal.SIGKILL
        else:
            # A worker or the reader died; the bridge itself is ended once that has happened.
            wait_until(lambda place=place: died(bridge, place))  # type: ignore[misc]
            process.kill()
        process.communicate()
    bridge.once()
    events = [msgspec.msgpack.decode(message.data) for message in bridge.messages(total)]
    assert [event["data"]["id"] for event in events] == list(range(total))
    assert len({event["msg_id"] for event in events}) == total


def delivered(bridge: Bridge) -> int:
    """How many messages the stream has."""
    options = NatsOptions(url=bridge.nats_url, stream=bridge.slot, subjects=(f"{bridge.slot}.>",))
    with JetStream.open(options) as jetstream:
        info = jetstream.stream_info(bridge.slot)
        return info.messages if info else 0


def died(bridge: Bridge, place: str) -> bool:
    """A killed worker shows as a failed batch; a killed reader has left its lock."""
    status = bridge.status()
    if status is None or not status["pipelines"]:
        return False
    pipeline = status["pipelines"][0]
    if place == "sender.sending":
        return bool(pipeline["errors_total"] > 0)
    state = bridge.project.directory / f".headgate/bridge-{bridge.slot}/pipelines/{bridge.slot}/spool/reader.json"
    try:
        reader = psutil.Process(json.loads(state.read_text())["pid"])
        return reader.status() == psutil.STATUS_ZOMBIE
    except (OSError, ValueError):
        return False
    except psutil.NoSuchProcess:
        return True


def test_a_second_bridge_on_the_same_stream_is_refused(
    bridge: Bridge, admin: psycopg.Connection[Any], stack: Stack
) -> None:
    make_slot(admin, bridge)
    insert(admin, bridge.slot, 1, 10)
    bridge.once()
    endpoints = stack.endpoints
    assert endpoints.nats_url is not None
    options = NatsOptions(url=endpoints.nats_url, stream=bridge.slot, subjects=(f"{bridge.slot}.>",))
    with JetStream.open(options) as jetstream:
        jetstream.publish(f"{bridge.slot}.intruder", b"x", (("Nats-Msg-Id", "someone-else-1"),))
    insert(admin, bridge.slot, 11, 10)
    process = bridge.start("--once")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 4, errors
    assert "somebody else writes to the stream" in errors


def test_a_stream_deleted_under_a_running_bridge_is_made_again(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    make_slot(admin, bridge)
    options = NatsOptions(url=bridge.nats_url, stream=bridge.slot, subjects=("x",))
    insert(admin, bridge.slot, 1, 5)
    process = bridge.start("--max-age", "1d", "--max-bytes", "10MiB")
    try:
        wait_until(lambda: _has_stream(options))
        bridge.messages(5)
        with JetStream.open(options) as jetstream:
            jetstream.delete_stream(bridge.slot)
        insert(admin, bridge.slot, 6, 5)
        wait_until(lambda: _has_stream(options))
        events = [msgspec.msgpack.decode(message.data) for message in bridge.messages(5)]
        assert [event["data"]["id"] for event in events] == [6, 7, 8, 9, 10]
        with JetStream.open(options) as jetstream:
            info = jetstream.stream_info(bridge.slot)
        assert info
        assert (info.max_age_s, info.max_bytes, info.discard) == (86400, 10 << 20, "new")
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert errors.count("was deleted with all it held") == 1, errors
    assert errors.count('event="batch failed"') + errors.count('event="pipeline failed"') <= 2, errors


def _has_stream(options: NatsOptions) -> bool:
    with JetStream.open(options) as jetstream:
        return jetstream.stream_info(options.stream) is not None


def test_debezium_events_have_tombstones_and_ids_in_order(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    make_slot(admin, bridge)
    insert(admin, bridge.slot, 1, 1)
    admin.execute(f"update {bridge.slot} set id = 2".encode())
    admin.execute(f"delete from {bridge.slot}".encode())
    bridge.once("--debezium")
    messages = bridge.messages(6)
    decoded: list[Any] = [json.loads(message.data) if message.data else None for message in messages]
    assert [event and event["op"] for event in decoded] == ["c", "d", None, "c", "d", None]
    assert decoded[0]["source"]["name"] == bridge.slot
    ids = [(message.headers or {})["Nats-Msg-Id"] for message in messages]
    assert ids == sorted(set(ids))
    bridge.once("--debezium")  # nothing comes twice
    assert len(bridge.messages(6)) == 6


def test_ddl_in_the_middle_of_traffic(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    """Columns come, go and change their name and type, tables come and go: the stream follows, row by row."""
    make_slot(admin, bridge)
    table, extra = bridge.slot, f"{bridge.slot}_extra"
    steps = (
        f"insert into {table} values (1, 'a', 1)",
        f"alter table {table} add column added int default 7",
        f"insert into {table} values (2, 'b', 2, 8)",
        f"alter table {table} rename column note to remark",
        f"insert into {table} values (3, 'c', 3, 9)",
        f"alter table {table} alter column added type text using 'v' || added",
        f"insert into {table} values (4, 'd', 4, 'ten')",
        f"alter table {table} drop column remark",
        f"insert into {table} values (5, 5, 'eleven')",
        f"create table {extra} (id int primary key, kind mood)",
        f"alter publication {bridge.slot} add table {extra}",
        f"insert into {extra} values (1, 'happy')",
        f"drop table {extra}",
        f"insert into {table} values (6, 6, 'twelve')",
    )
    admin.execute("drop type if exists mood cascade; create type mood as enum ('sad', 'happy')")
    for step in steps:
        admin.execute(step.encode())
    bridge.once("--json")
    stream = [json.loads(message.data) for message in bridge.messages(13)]
    events = [event for event in stream if event["operation"] != "SCHEMA"]
    assert [event["data"] for event in events] == [
        {"id": 1, "note": "a", "amount": "1"},
        {"id": 2, "note": "b", "amount": "2", "added": 8},
        {"id": 3, "remark": "c", "amount": "3", "added": 9},
        {"id": 4, "remark": "d", "amount": "4", "added": "ten"},
        {"id": 5, "amount": "5", "added": "eleven"},
        {"id": 1, "kind": "happy"},
        {"id": 6, "amount": "6", "added": "twelve"},
    ]
    described = {event["schema_version"]: event["data"] for event in stream if event["operation"] == "SCHEMA"}
    for event in events:
        columns = [column["name"] for column in described[event["schema_version"]]["columns"]]
        assert columns == list(event["data"])
    assert [column["type"] for column in described[events[3]["schema_version"]]["columns"]] == [
        "bigint", "text", "numeric", "text",
    ]  # fmt: skip
    assert described[events[5]["schema_version"]]["table"] == extra
    # Each stands right before the first row of its shape.
    for number, event in enumerate(stream):
        if event["operation"] == "SCHEMA":
            assert stream[number + 1]["schema_version"] == event["schema_version"]


def test_a_transaction_of_500_000_rows_needs_no_memory_for_them(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    rows = 500_000
    make_slot(admin, bridge)
    insert(admin, bridge.slot, -1000, 1000)
    process = bridge.start()
    wait_until(lambda: (s := bridge.status()) is not None and s["pipelines"][0]["rows_total"] == 1000)
    before = python_bytes(process.pid)
    insert(admin, bridge.slot, 0, rows)
    committed = time.monotonic()
    most = before
    with JetStream.open(NatsOptions(url=bridge.nats_url, stream=bridge.slot, subjects=("x",))) as jetstream:
        first_s = None
        while (info := jetstream.stream_info(bridge.slot)) is not None and info.last_sequence < rows + 1000:
            if first_s is None and info.last_sequence > 1000:
                first_s = time.monotonic() - committed
            most = max(most, python_bytes(process.pid))
            assert time.monotonic() - committed < 120
            time.sleep(0.1)
    process.terminate()
    process.communicate(timeout=60)
    assert first_s is not None
    assert first_s < 15
    # The rows are some 70 MB of WAL and 200 MB of events; none of our processes holds them.
    assert most - before < 150e6


def python_bytes(pid: int) -> int:
    """Private memory of our own processes: not Java's, whose heap is bounded by its setting, and no mapped files."""
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            if "python" in process.name():
                memory = process.memory_info()
                total += memory.rss - memory.shared
        except psutil.Error:
            continue
    return total
