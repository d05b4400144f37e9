"""Servers of their own for change data capture: tests here restart them, and drop slots and publications.

A test runs on the newest version that the wheel has; with `@every_version` on each of them, and on Debian's with its
defaults. A module's servers live side by side until its end, so that no order of the tests starts one twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.reader import ReaderOptions
from tests.stock import STOCK_VERSION, StockPostgres, needs_stock

Admin = psycopg.Connection[tuple[Any, ...]]


VERSIONS = (STOCK_VERSION, 16, 18)

every_version = pytest.mark.parametrize(
    "server",
    [pytest.param(version, marks=needs_stock if version == STOCK_VERSION else ()) for version in VERSIONS],
    indirect=True,
    ids="pg{}".format,
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], PostgresServer]]:
    """A server by its version, started when first asked for."""
    running: dict[int, PostgresServer] = {}

    def of(version: int) -> PostgresServer:
        if version not in running:
            running[version] = new_server(tmp_path_factory.mktemp(f"cdc{version}"), version)
            running[version].start()
        return running[version]

    yield of
    for server in running.values():
        server.stop()


def new_server(directory: Path, version: int = VERSIONS[-1], **settings: str) -> PostgresServer:
    """A server that was not started yet, in a directory of its own."""
    data, run = directory / "postgres", directory / "run"
    run.mkdir(exist_ok=True)
    if version == STOCK_VERSION:
        return StockPostgres(data, run, settings=settings)
    return PostgresServer(data, run, version=version, durable=False, settings=settings)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Callable[[int], PostgresServer]) -> PostgresServer:
    return servers(getattr(request, "param", VERSIONS[-1]))


@pytest.fixture
def url(server: PostgresServer) -> str:
    """As a role that has REPLICATION, CONNECT and SELECT, and nothing else."""
    return server.url.replace("user=headgate", "user=bridge")


@pytest.fixture
def admin(server: PostgresServer) -> Iterator[Admin]:
    """The owner of everything; leaves no slot, publication or table behind."""
    prepare(server.url)
    connection = psycopg.connect(server.url, autocommit=True)
    yield connection
    connection.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        for (name,) in connection.execute("select slot_name from pg_replication_slots").fetchall():
            drop_slot(connection, name)
        for (name,) in connection.execute("select pubname from pg_publication").fetchall():
            connection.execute(f'drop publication "{name}"'.encode())


def prepare(url: str) -> None:
    """An empty schema with the table `t` in the publication `p`, and the role `bridge`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "drop schema if exists public cascade; create schema public; grant usage on schema public to public"
        )
        if connection.execute("select 1 from pg_roles where rolname = 'bridge'").fetchone() is None:
            connection.execute("create role bridge login replication")
        connection.execute("alter default privileges in schema public grant select on tables to bridge")
        connection.execute("create table t (id bigint primary key, note text)")
        connection.execute("create publication p for table t")


def drop_slot(connection: Admin, slot: str) -> None:
    """The walsender of a slot takes a moment to let go."""
    for _ in range(200):
        try:
            connection.execute("select pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            connection.execute("select pg_sleep(0.05)")
        else:
            return
    raise TimeoutError(slot)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def reader(url: str, spool: Path) -> Iterator[Callable[..., ReaderProcess]]:
    yield from readers(url, spool)


def readers(url: str, spool: Path) -> Iterator[Callable[..., ReaderProcess]]:
    """Makes readers of the slot `s`, and stops them in the end."""
    started: list[ReaderProcess] = []

    def start(**changes: Any) -> ReaderProcess:
        options = {"url": url, "slot": "s", "publications": ("p",), "spool": str(spool), **changes}
        started.append(ReaderProcess(ReaderOptions(**options)))
        return started[-1]

    yield start
    for process in started:
        process.stop()
