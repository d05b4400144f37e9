"""A stack in bad days: taken ports, servers that do not start, crashes of servers and of owners."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headgate.embedded import Stack, ports
from headgate.embedded.process import ended
from headgate.model import OccupiedError, StateError

from .clients import announced, last_message, owner, publish, query, runs


@contextlib.contextmanager
def taken_port(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as listener:
        yield listener.getsockname()[1]


def port_of(url: str | None) -> int:
    assert url is not None
    return int(url.rpartition(":")[2])


def server_pids(data_dir: Path) -> list[int]:
    return [json.loads((data_dir / "run" / f"{name}.json").read_text())["process"]["pid"] for name in NAMES]


NAMES = ("postgres", "nats")


@pytest.mark.parametrize("option", ["postgres_port", "nats_port", "nats_monitor_port"])
def test_a_taken_fixed_port_is_an_error(data_dir: Path, option: str) -> None:
    with taken_port() as port:
        options: dict[str, Any] = {option: port, "postgres": option == "postgres_port", "durable": False}
        with pytest.raises(OccupiedError, match=f"port {port} for") as caught:
            Stack(data_dir, **options).start()
    assert "another port" in caught.value.remedy


def test_a_free_fixed_port_is_used(data_dir: Path) -> None:
    with taken_port() as port:
        pass
    with Stack(data_dir, postgres=False, nats_port=port) as endpoints:
        assert endpoints.nats_url == f"nats://127.0.0.1:{port}"


def test_a_remembered_port_that_is_taken_is_chosen_again(data_dir: Path) -> None:
    with Stack(data_dir, postgres=False) as first:
        publish(first.nats_url, b"kept")
    with taken_port(port_of(first.nats_url)), Stack(data_dir, postgres=False) as second:
        assert second.nats_url != first.nats_url
        assert last_message(second.nats_url) == b"kept"


def test_a_port_lost_at_the_last_moment_is_chosen_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, is_free = ports.choose, ports.is_free
    with taken_port() as port:
        looks = iter([True])  # the port looks free once, as it did before somebody took it
        picks = iter([port])
        monkeypatch.setattr(ports, "choose", lambda remembered: next(picks, None) or choose())
        monkeypatch.setattr(ports, "is_free", lambda asked: next(looks, None) or is_free(asked))
        with Stack(data_dir, nats=False, durable=False) as endpoints:
            assert query(endpoints.postgres_url, "show port") != [(str(port),)]
    assert "Address already in use" in (data_dir / "run" / "postgres.log").read_text()


def test_a_server_that_dies_at_start_says_why_and_stops_the_others(data_dir: Path) -> None:
    stack = Stack(data_dir, durable=False, nats_sync_interval="sometimes")
    with pytest.raises(StateError, match="nats ended with exit code 1 at start") as caught:
        stack.start()
    assert "sometimes" in str(caught.value), "the log's last lines"
    assert "nats.log" in caught.value.remedy
    assert stack.postgres is not None
    assert stack.postgres.pid is None
    with Stack(data_dir, durable=False) as endpoints:
        assert query(endpoints.postgres_url, "select 1") == [(1,)], "the directory is free again"


def test_postgres_that_dies_at_start_says_why(data_dir: Path) -> None:
    settings = {"shared_preload_libraries": "no_such_library"}
    with pytest.raises(StateError, match="no_such_library"):
        Stack(data_dir, nats=False, durable=False, postgres_settings=settings).start()


def test_foreign_files_are_not_overwritten(data_dir: Path) -> None:
    place = data_dir / "postgres-18"
    place.mkdir(parents=True)
    (place / "thesis.txt").touch()
    with pytest.raises(StateError, match="neither empty nor a PostgreSQL data directory") as caught:
        Stack(data_dir, nats=False).start()
    assert "Move it away" in caught.value.remedy
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


def test_a_lost_passfile_is_made_again(data_dir: Path) -> None:
    with Stack(data_dir, nats=False, durable=False):
        passfile = data_dir / "postgres-18.passfile"
        old = passfile.read_text()
        passfile.unlink()
    with Stack(data_dir, nats=False, durable=False) as endpoints:
        assert query(endpoints.postgres_tcp_url, "select 1") == [(1,)]
        assert passfile.read_text() != old


def test_killed_servers_come_back_with_their_data(data_dir: Path) -> None:
    stack = Stack(data_dir, durable=False)
    with stack as endpoints:
        assert stack.postgres is not None
        assert stack.nats is not None
        query(endpoints.postgres_url, "create table kept as select 42 as x")
        publish(endpoints.nats_url, b"kept")
        pids = [server.pid for server in stack.servers]
        for server in stack.servers:
            server.kill()
            assert server.poll() == -signal.SIGKILL
        assert stack.dead() == ["postgres", "nats"]
        for server in stack.servers:
            server.restart()
        assert stack.dead() == []
        assert not set(pids) & {server.pid for server in stack.servers}
        assert query(endpoints.postgres_url, "select x from kept") == [(42,)]
        assert query(endpoints.postgres_tcp_url, "select x from kept") == [(42,)]
        assert last_message(endpoints.nats_url) == b"kept"
        assert stack.endpoints == endpoints


def test_postgres_killed_from_outside_under_load(data_dir: Path) -> None:
    """The backends outlive their server while they are busy, and must not meet the next one."""
    stack = Stack(data_dir, nats=False, durable=False)
    with stack as endpoints:
        assert stack.postgres is not None
        assert endpoints.postgres_url is not None
        query(endpoints.postgres_url, "create table kept as select 42 as x")
        connection = psycopg.connect(endpoints.postgres_url, autocommit=True)
        # A loop that looks at nothing, so that it does not notice the death of its server.
        connection.pgconn.send_query(b"select count(*) from generate_series(1, 1e12::bigint)")
        connection.pgconn.flush()
        busy = connection.info.backend_pid
        assert stack.postgres.pid is not None
        os.kill(stack.postgres.pid, signal.SIGKILL)
        stack.postgres.restart()
        assert not runs(busy)
        assert query(endpoints.postgres_url, "select x from kept") == [(42,)]
        connection.close()


def test_orphans_of_a_killed_owner_are_stopped(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with owner(data_dir) as process:
        before = announced(process)
        query(before.postgres_url, "create table kept as select 42 as x")
        publish(before.nats_url, b"kept")
        process.kill()
    orphans = server_pids(data_dir)
    assert all(runs(pid) for pid in orphans), "they go on without their owner"
    assert Stack.attach(data_dir) is None
    with caplog.at_level(logging.WARNING, "headgate.embedded"), Stack(data_dir, durable=False) as after:
        assert not any(runs(pid) for pid in orphans)
        assert [record.getMessage() for record in caplog.records] == [
            f"stopping {name} (process {pid}), left running by an owner that was killed"
            for name, pid in zip(NAMES, orphans, strict=True)
        ]
        assert (after.postgres_url, after.nats_url) == (before.postgres_url, before.nats_url)
        assert query(after.postgres_url, "select x from kept") == [(42,)]
        assert last_message(after.nats_url) == b"kept"
    assert "database system is shut down" in (data_dir / "run" / "postgres.log").read_text()


def test_everything_killed_at_once(data_dir: Path) -> None:
    with owner(data_dir) as process:
        before = announced(process)
        query(before.postgres_url, "create table kept as select 42 as x")
        process.kill()
        for pid in server_pids(data_dir):
            os.kill(pid, signal.SIGKILL)
    with Stack(data_dir, durable=False) as after:
        assert query(after.postgres_url, "select x from kept") == [(42,)]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that has nothing to do with us, but belongs to the user that runs PostgreSQL."""
    process = subprocess.Popen(["sleep", "60"], user="nobody" if os.geteuid() == 0 else None)
    yield process.pid
    assert process.poll() is None, "it was left alone"
    process.kill()
    process.wait()


def test_a_reused_pid_is_left_alone(data_dir: Path, stranger: int) -> None:
    with Stack(data_dir, durable=False) as endpoints:
        query(endpoints.postgres_url, "create table kept as select 42 as x")
    for name in NAMES:
        record = {"port": None, "process": {"pid": stranger, "started": 1.0}}
        (data_dir / "run" / f"{name}.json").write_text(json.dumps(record))
    # PostgreSQL by itself would take the stranger for its predecessor and refuse.
    (data_dir / "postgres-18" / "postmaster.pid").write_text(f"{stranger}\n{data_dir}/postgres-18\n1\n1\n\n\n0\n")
    with Stack(data_dir, durable=False) as endpoints:
        assert query(endpoints.postgres_url, "select x from kept") == [(42,)]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_server_in_our_data(data_dir: Path, name: str) -> None:
    """Somebody runs a server there by hand, or all memory of an orphan was lost: never two on the same data."""
    options: dict[str, Any] = {other: other == name for other in NAMES}
    with owner(data_dir, **options) as process:
        announced(process)
        pid = json.loads((data_dir / "run" / f"{name}.json").read_text())["process"]["pid"]
        process.kill()
    (data_dir / "run" / f"{name}.json").write_text("garbage")
    try:
        with pytest.raises(OccupiedError, match=rf"another {name} server \(process {pid}\)") as caught:
            Stack(data_dir, durable=False, **options).start()
        assert f"kill {pid}" in caught.value.remedy
    finally:
        orphan = psutil.Process(pid)
        orphan.send_signal(signal.SIGTERM if name == "nats" else signal.SIGINT)
        assert ended(orphan, 20)
    with Stack(data_dir, durable=False, **options):
        pass


def test_killed_in_the_middle_of_initdb(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    draft = data_dir / "postgres-18.initdb"
    with owner(data_dir, nats=False) as process:
        while not (draft / "PG_VERSION").exists():
            assert process.poll() is None
        process.kill()
    assert not (data_dir / "postgres-18").exists()
    with caplog.at_level(logging.WARNING, "headgate.embedded"), Stack(data_dir, durable=False) as endpoints:
        assert query(endpoints.postgres_url, "select 1") == [(1,)]
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("headgate.embedded")]
    assert ours == [f"throwing away {draft}, left by a start that was cut short"]
    assert not draft.exists()


def test_interrupted_in_the_middle_of_initdb(data_dir: Path) -> None:
    draft = data_dir / "postgres-18.initdb"
    with owner(data_dir, nats=False) as process:
        while not (draft / "PG_VERSION").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
    assert sorted(path.name for path in data_dir.iterdir()) == [".gitignore", "lock", "run"]


def test_garbage_in_our_notes_is_no_obstacle(data_dir: Path) -> None:
    (data_dir / "run").mkdir(parents=True)
    for note in ("stack.json", "lock", "run/nats.json"):
        (data_dir / note).write_text('{"owner": [')
    assert Stack.attach(data_dir) is None
    with Stack(data_dir, postgres=False) as endpoints:
        assert Stack.attach(data_dir) == endpoints


def test_of_two_that_start_at_once_one_wins(data_dir: Path) -> None:
    with owner(data_dir) as first, owner(data_dir) as second:
        assert first.stdout is not None
        assert second.stdout is not None
        # The winner holds the directory until its input ends; the loser's output ends without a line.
        lines = {first.stdout.readline(): first, second.stdout.readline(): second}
        assert len(lines) == 2
        assert "OccupiedError" in lines[""].communicate()[1]
    assert sorted(process.returncode for process in (first, second)) == [0, 1]
