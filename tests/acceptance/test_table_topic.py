"""A table as a compacted topic, by the recipe: a late reader finds exactly the rows that the table has."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from conformance.maven import jars
from headgate.embedded.postgres import PostgresServer
from tests.acceptance.conftest import HEADGATE, Project
from tests.acceptance.test_bridge_gaps import wait_until
from tests.acceptance.test_gateway_chaos import free_port
from tests.integration.cdc.conftest import new_server, prepare
from tests.stock import STOCK_VERSION, needs_stock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS, LARGE = 2000, 3000
TABLES = ("public.customers", "public.orders")
STATEMENTS = [
    "insert into customers values (%(id)s, 'new', repeat('x', 3000)) on conflict (id) do update set name = 'again'",
    "update customers set name = left(customers.name || 'u', 20) where id = %(id)s",
    "update customers c set id = -id where id = %(id)s and not exists (select from customers o where o.id = -c.id)",
    "delete from customers where id = %(id)s",
    "insert into orders values ('eu', %(id)s, 1.50) on conflict do nothing",
    "update orders set total = total + 1 where number = %(id)s",
    "delete from orders where number = %(id)s",
]

Rows = dict[str, Any]


@pytest.fixture(params=[18, pytest.param(STOCK_VERSION, marks=needs_stock)], ids=["pg18", "pg15"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostgresServer]:
    (tmp_path / "server").mkdir()
    made = new_server(tmp_path / "server", request.param)
    made.start()
    prepare(made.url)
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(
            "create table customers (id bigint primary key, name text, note text);"
            "alter table customers alter note set storage external, replica identity full;"
            "create table orders (region text, number bigint, total numeric(12,2), primary key (region, number));"
            f"insert into customers select i, 'n' || i, repeat('n', {LARGE}) from generate_series(1, {ROWS}) i;"
            f"insert into orders select 'us', i, i from generate_series(1, {ROWS}) i;".encode()
        )
    yield made
    made.stop()


class Writer(threading.Thread):
    """Random changes until it is told to stop; how many."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.changes = 0
        self._url = url

    def run(self) -> None:
        rng = random.Random(11)
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self.over.wait(0.001):
                connection.execute(rng.choice(STATEMENTS).encode(), {"id": rng.randint(1, 300)})
                self.changes += 1


def configure(project: Project, url: str, port: int) -> None:
    assert project.run("init", "--recipe", "table-topic").returncode == 0
    path = project.directory / "headgate.toml"
    text = path.read_text().replace('url = "embedded" ', f'url = "{url}" ').replace("port = 9092", f"port = {port}")
    text = text.replace('tables = ["public.customers"]', f"tables = {json.dumps(TABLES)}")
    path.write_text(text + "\n[control]\nport = 0\n")


def key_of(row: Rows) -> str:
    return json.dumps({"id": row["id"]} if "id" in row else {"region": row["region"], "number": row["number"]})


def tables_of(url: str) -> dict[str, dict[str, Rows]]:
    """The rows by their keys, with decimals as Debezium's default writes them left out."""
    found = {}
    with psycopg.connect(url) as connection:
        for table in TABLES:
            rows = [row for (row,) in connection.execute(f"select to_jsonb(t) - 'total' from {table} t".encode())]
            found[table] = {key_of(row): row for row in rows}
    return found


def folded(messages: Sequence[tuple[bytes | str, bytes | str | None]]) -> dict[str, Rows]:
    """What somebody keeps who knows nothing but keys, values and deletions."""
    rows: dict[str, Rows] = {}
    for key, value in messages:
        name = json.dumps(json.loads(key))
        if value is None:
            rows.pop(name, None)
        else:
            row = json.loads(value)
            row.pop("total", None)
            rows[name] = row
    return rows


def by_python(servers: str, topic: str) -> list[tuple[bytes | str, bytes | str | None]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "late", "enable.partition.eof": True})
    parts = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, part, 0) for part in parts])
    found: list[tuple[bytes | str, bytes | str | None]] = []
    ended: set[int] = set()
    while len(ended) < len(parts):
        message = consumer.poll(30)
        assert message is not None, "no more messages, and no end"
        if message.error():
            ended.add(message.partition() or 0)
        else:
            key = message.key()
            assert key is not None
            found.append((key, message.value()))
    consumer.close()
    return found


def by_java(classes: Path, servers: str, topic: str) -> list[tuple[bytes | str, bytes | str | None]]:
    done = subprocess.run(
        [
            *("java", "-cp", f"{classes}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
            *("--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
            *("--timeout-ms", "15000", "--property", "print.key=true"),  # so long after the last one
            *("--property", "null.literal=<gone>"),
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines, done.stderr
    return [(key, None if value == "<gone>" else value) for key, value in lines]


def test_a_late_reader_finds_the_table(project: Project, server: PostgresServer) -> None:
    port = free_port()
    configure(project, server.url, port)
    checked = project.run("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    writer = Writer(server.url)
    with running(project):
        writer.start()
        wait_until(lambda: count_of(server.url) > 2 * ROWS)
        before = writer.changes
        wait_until(lambda: writer.changes > before + 500)
    with running(project):
        before = writer.changes
        wait_until(lambda: project.status() is not None and writer.changes > before + 500)
        writer.over.set()
        writer.join()
        servers = f"127.0.0.1:{port}"
        wanted = tables_of(server.url)
        wait_until(lambda: {table: folded(by_python(servers, table)) for table in TABLES} == wanted)
        wait_until(lambda: count_of(server.url) < 2 * ROWS + writer.changes / 2)
        assert {table: folded(by_python(servers, table)) for table in TABLES} == wanted
        with psycopg.connect(server.url) as connection:
            policies = connection.execute("select distinct configs ->> 'cleanup.policy' from kafka.topics").fetchall()
        assert policies == [("compact",)]
        try:
            classes = jars(Path(".headgate/conformance/java"), "org.apache.kafka:kafka-tools:4.1.0")
        except (SystemExit, subprocess.TimeoutExpired) as error:
            pytest.skip(f"all but Java's client: {error}")
        assert folded(by_java(classes.resolve(), servers, TABLES[1])) == wanted[TABLES[1]]


@contextmanager
def running(project: Project) -> Iterator[None]:
    """`headgate run`, until it is killed."""
    with (project.directory / "run.log").open("ab") as log:
        command = [HEADGATE, "run"]
        process = subprocess.Popen(command, cwd=project.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def count_of(url: str) -> int:
    """How many messages the log has; none before it is made."""
    with psycopg.connect(url) as connection:
        try:
            return len(connection.execute("select from kafka.messages").fetchall())
        except psycopg.errors.UndefinedTable:
            return 0
