"""What the README and the quickstart tell a newcomer to type, line by line, with Spark."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headgate.embedded import Stack
from headgate.embedded.postgres import PostgresServer
from tests.documents import Terminal, block, blocks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class FreshPostgres(PostgresServer):
    """A server that nobody has set up for logical replication yet."""

    def __init__(self, data: Path, run: Path) -> None:
        super().__init__(data, run, durable=False)
        self._settings = {"fsync": "off"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FreshPostgres]:
    (tmp_path / "run").mkdir()
    server = FreshPostgres(tmp_path / "postgres", tmp_path / "run")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def nats_url(tmp_path: Path) -> Iterator[str]:
    with Stack(tmp_path / "stack", postgres=False, durable=False) as running:
        assert running.nats_url is not None
        yield running.nats_url


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def test_five_steps_from_a_database_to_a_replica(server: FreshPostgres, nats_url: str, tmp_path: Path) -> None:
    page = "docs/quickstart.md"
    setting, grants, removal = [each.text for each in blocks(page) if each.language == "sql"]
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(setting.encode())
        admin.execute("create database shop")
    server.stop()
    server.start()
    shop = make_conninfo(server.url, dbname="shop")
    with psycopg.connect(shop, autocommit=True) as admin:
        admin.execute("create table users (id int primary key, name text)")
        admin.execute("create table orders (id int primary key, customer int)")
        admin.execute("insert into users values (1, 'ann')")
        admin.execute(grants.encode())
    examples = {
        "postgres://bridge@localhost/shop": f"'{make_conninfo(shop, user='bridge')}'",
        "postgres://reader@localhost/shop": f"'{make_conninfo(shop, user='bridge')}'",
        "nats://localhost:4222": nats_url,
        "headgate bridge": f"headgate bridge --port {free_port()}",
    }
    with Terminal(tmp_path, examples, {"HEADGATE_NATS": nats_url, "PGPASSWORD": "choose one"}) as terminal:
        terminal.play(block(page, "headgate check"))
        terminal.play(block(page, "headgate bridge"), {"headgate bridge": lambda printed: "public.users" in printed})
        with psycopg.connect(shop, autocommit=True) as admin:
            copied = {"headgate replica run": lambda _: users_in(tmp_path / "shop.db") == 1}
            terminal.play(block(page, "headgate replica run"), copied)
            admin.execute("insert into orders values (1, 1)")
        assert "exact" in terminal.play(block("docs/replica.md", "headgate replica status"))
    with psycopg.connect(shop, autocommit=True) as admin:
        admin.execute(removal.encode())
        assert admin.execute("select count(*) from pg_replication_slots").fetchone() == (0,)


def test_a_file_that_runs_as_it_is(tmp_path: Path) -> None:
    shown = block("README.md", "headgate init")
    environ = {"HEADGATE__CONTROL__PORT": free_port()}
    with Terminal(tmp_path, environ=environ) as terminal:
        terminal.play(shown, {"headgate run": lambda _: is_ready(tmp_path)})


def users_in(file: Path) -> int:
    """How many users the copy has; none until there is one."""
    try:
        with closing(sqlite3.connect(file)) as copy:
            return int(copy.execute("select count(*) from users").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def is_ready(directory: Path) -> bool:
    try:
        url = json.loads((directory / ".headgate/run/control.json").read_text())["url"]
        return bool(urllib.request.urlopen(f"{url}/ready", timeout=5).status == 200)
    except (OSError, ValueError):
        return False


def test_events_in_files_over_http(tmp_path: Path) -> None:
    page, port = "docs/eventlog.md", free_port()
    destination = next(each.text for each in blocks(page) if each.language == "toml")
    (tmp_path / "headgate.toml").write_text(
        f"{destination}port = {port}\n"
        '[control]\nport = 0\n[sources.s]\ntype = "random"\n'
        '[pipelines.p]\nsource = "s"\ndestinations = ["events"]\ntopic = "orders"\n'
    )
    head = tmp_path / ".headgate/eventlogs/events/head"
    with Terminal(tmp_path, {"8740": port}) as terminal:
        shown = terminal.play(
            block(page, "headgate run"),
            {
                "headgate run": lambda _: head.exists(),
                "headgate eventlog serve": lambda printed: port in printed,
                "curl": lambda printed: "data: " in printed,
            },
        )
    assert re.search(r"\d", shown)
