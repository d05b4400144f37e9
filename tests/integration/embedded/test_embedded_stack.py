"""A stack in good days: what it offers, what it keeps, how it is shared."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.embedded import Endpoints, Stack
from headgate.model import OccupiedError, StateError, UsageError

from .clients import announced, last_message, owner, publish, query, runs


def test_postgres_is_ready_for_logical_decoding(shared: Endpoints) -> None:
    settings = query(
        shared.postgres_url,
        "select name, setting from pg_settings where name in ('fsync', 'listen_addresses', 'max_prepared_transactions',"
        " 'max_replication_slots', 'max_wal_senders', 'server_version_num', 'wal_level') order by name",
    )
    assert [value for _, value in settings[:-2]] == ["on", "127.0.0.1", "10", "20", "20"]
    assert settings[-2][1].startswith("18")
    assert settings[-1][1] == "logical"
    assert query(shared.postgres_url, "select current_user, current_database()") == [("headgate", "headgate")]
    query(shared.postgres_url, "select pg_create_logical_replication_slot('tried', 'pgoutput')")
    query(shared.postgres_url, "select pg_drop_replication_slot('tried')")


def test_text_is_unicode_sorted_by_code_point(shared: Endpoints) -> None:
    rows = query(shared.postgres_url, "select upper(x) from (values ('é'), ('z'), ('Z')) as letters (x) order by x")
    assert rows == [("Z",), ("Z",), ("É",)]


def test_tcp_wants_the_password_of_the_passfile(shared: Endpoints) -> None:
    assert query(shared.postgres_tcp_url, "select inet_server_addr() is not null") == [(True,)]
    assert shared.postgres_tcp_url is not None
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(shared.postgres_tcp_url, passfile="/dev/null")


def test_the_secret_stays_in_its_file(shared: Endpoints) -> None:
    passfile = shared.data_dir / "postgres-18.passfile"
    assert stat.S_IMODE(passfile.stat().st_mode) == 0o600
    password = passfile.read_text().strip().rpartition(":")[2]
    assert len(password) >= 32
    assert password not in repr(shared)
    others = [path for path in shared.data_dir.rglob("*") if path.is_file() and path != passfile]
    assert len(others) > 10
    assert [path for path in others if password.encode() in path.read_bytes()] == []


def test_files_are_private(shared: Endpoints) -> None:
    modes = {
        path.relative_to(shared.data_dir).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in [*shared.data_dir.iterdir(), *(shared.data_dir / "run").iterdir()]
    }
    assert {modes[name] for name in ("nats", "postgres-18", "run/postgres")} == {0o700}
    private = ("lock", "stack.json", "run/nats.conf", "run/nats.log", "run/postgres.log", "run/postgres.json")
    assert {modes[name] for name in private} == {0o600}


def test_jetstream_stores_messages(shared: Endpoints) -> None:
    publish(shared.nats_url, b"first")
    assert last_message(shared.nats_url) == b"first"


def jetstream_config(endpoints: Endpoints) -> dict[str, Any]:
    with urllib.request.urlopen(f"{endpoints.nats_monitor_url}/jsz", timeout=10) as answer:
        config: dict[str, Any] = json.load(answer)["config"]
    return config


def test_nats_monitoring_on_request(shared: Endpoints) -> None:
    config = jetstream_config(shared)
    assert config["store_dir"].startswith(str(shared.data_dir / "nats"))
    assert config["sync_interval"] == 10 * 10**9, "nanoseconds"


def test_jetstream_can_sync_every_message(data_dir: Path) -> None:
    with Stack(data_dir, postgres=False, nats_monitor_port=0, nats_sync_interval="always") as endpoints:
        assert jetstream_config(endpoints)["sync_always"] is True
        publish(endpoints.nats_url, b"x")


def test_attach_finds_the_stack_of_a_living_owner(shared: Endpoints) -> None:
    script = "import sys; from headgate.embedded import Stack; print(Stack.attach(sys.argv[1]))"
    seen = subprocess.run(
        [sys.executable, "-c", script, str(shared.data_dir)], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == str(shared)


def test_a_held_directory_names_its_owner(shared: Endpoints) -> None:
    with pytest.raises(OccupiedError, match=f"process {os.getpid()}"):
        Stack(shared.data_dir).start()
    assert query(shared.postgres_url, "select 1") == [(1,)], "the refused start left the servers alone"


def test_data_and_addresses_survive_a_restart(data_dir: Path) -> None:
    with Stack(data_dir, durable=False) as first:
        query(first.postgres_url, "create table kept as select 42 as x")
        publish(first.nats_url, b"kept")
    assert Stack.attach(data_dir) is None
    with Stack(data_dir, durable=False) as second:
        assert second == first
        for url in (second.postgres_url, second.postgres_tcp_url):
            assert query(url, "select x from kept") == [(42,)]
        assert last_message(second.nats_url) == b"kept"
    assert not (data_dir / "stack.json").exists()


def test_start_and_stop_are_idempotent(data_dir: Path) -> None:
    stack = Stack(data_dir, postgres=False)
    stack.stop()
    assert stack.dead() == []
    assert stack.start() == stack.start() == stack.endpoints
    assert stack.nats is not None
    pid = stack.nats.pid
    assert pid is not None
    assert os.getsid(pid) == pid, "out of reach of a terminal's Ctrl-C"
    stack.nats.start()
    assert stack.nats.pid == pid
    stack.stop()
    stack.stop()
    assert not runs(pid)
    with pytest.raises(StateError, match="does not run"):
        _ = stack.endpoints


def test_two_stacks_side_by_side(tmp_path: Path) -> None:
    first, second = (Stack(tmp_path / name, durable=False) for name in "ab")
    with first as one, second as two:
        query(one.postgres_url, "create table only_here ()")
        assert query(two.postgres_url, "select to_regclass('only_here')") == [(None,)]
        assert one.nats_url != two.nats_url


def test_an_exit_without_stop_leaves_nothing_running(data_dir: Path) -> None:
    script = "import sys; from headgate.embedded import Stack; s = Stack(sys.argv[1]); s.start(); print(s.nats.pid)"
    ended = subprocess.run([sys.executable, "-c", script, str(data_dir)], capture_output=True, text=True, check=True)
    assert not runs(int(ended.stdout))
    assert "Server Exiting" in (data_dir / "run" / "nats.log").read_text()
    assert (data_dir / "run" / "postgres.log").read_text().rstrip().endswith("database system is shut down")


def test_only_what_is_asked_for(data_dir: Path) -> None:
    with Stack(data_dir, postgres=False, nats_max_payload_bytes=4096) as endpoints:
        assert endpoints.postgres_url is None
        assert endpoints.postgres_tcp_url is None
        assert endpoints.nats_url is not None
        port = int(endpoints.nats_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert b'"max_payload":4096' in client.makefile("rb").readline()
    assert not (data_dir / "postgres-18").exists()


def test_postgres_16(data_dir: Path) -> None:
    with Stack(data_dir, nats=False, postgres_version=16, durable=False) as endpoints:
        assert query(endpoints.postgres_tcp_url, "show server_version")[0][0].startswith("16.")
        assert query(endpoints.postgres_url, "show wal_level") == [("logical",)]
    with pytest.raises(StateError, match=r"holds postgres-16, not postgres-18") as caught:
        Stack(data_dir, nats=False).start()
    assert "version 16" in caught.value.remedy
    (data_dir / "postgres-16").rename(data_dir / "postgres-18")
    with pytest.raises(StateError, match=r"holds data of PostgreSQL 16, not 18") as caught:
        Stack(data_dir, nats=False).start()
    assert "version 16" in caught.value.remedy


@pytest.mark.parametrize(
    "options", [{"postgres_version": 17}, {"nats_max_payload_bytes": 0}, {"nats_max_payload_bytes": 9 << 20}]
)
def test_impossible_wishes(data_dir: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Stack(data_dir, **options)
    assert caught.value.remedy.startswith("Choose")


def test_own_settings_win(data_dir: Path) -> None:
    settings = {"max_wal_senders": "7", "work_mem": "8MB"}
    with Stack(data_dir, nats=False, durable=False, postgres_settings=settings) as endpoints:
        found = query(endpoints.postgres_url, "show max_wal_senders"), query(endpoints.postgres_url, "show work_mem")
        assert found == ([("7",)], [("8MB",)])
        assert query(endpoints.postgres_url, "show fsync") == [("off",)]


@pytest.mark.parametrize("name", ["a, \"b\" 'c' %d é", "l" * 120], ids=["awkward", "long"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    with Stack(tmp_path / name, durable=False) as endpoints:
        for url in (endpoints.postgres_url, endpoints.postgres_tcp_url):
            assert query(url, "select 1") == [(1,)]
        publish(endpoints.nats_url, b"x")
        (socket_dir,) = query(endpoints.postgres_url, "show unix_socket_directories")[0]
        sockets = Path(socket_dir.strip('"'))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert tmp_path not in sockets.parents, "it fell back to the temporary directory"
    assert not sockets.exists()


def test_a_trap_in_the_temporary_directory_is_refused(tmp_path: Path) -> None:
    long = tmp_path / ("l" * 120)
    with Stack(long, nats=False, durable=False) as endpoints:
        (place,) = query(endpoints.postgres_url, "show unix_socket_directories")[0]
    sockets = Path(place.strip('"'))
    sockets.symlink_to(tmp_path)
    try:
        with pytest.raises(OccupiedError, match="belongs to somebody else"):
            Stack(long, nats=False, durable=False).start()
    finally:
        sockets.unlink()


def test_a_stack_of_another_process(data_dir: Path) -> None:
    with owner(data_dir) as process:
        endpoints = announced(process)
        assert endpoints.owner_pid == process.pid
        assert Stack.attach(data_dir) == endpoints
        assert query(endpoints.postgres_url, "select 1") == [(1,)]
        with pytest.raises(OccupiedError, match=f"process {process.pid}"):
            Stack(data_dir).start()
    assert process.returncode == 0
    assert Stack.attach(data_dir) is None
