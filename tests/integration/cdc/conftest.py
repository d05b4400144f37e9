"""Servers of their own for change data capture: tests here restart them, and drop slots and publications.

A test runs on the newest version that the wheel has; with `@every_version` on each of them. A module's servers live
side by side until its end, so that no order of the tests starts one twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.embedded import Stack
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.reader import ReaderOptions

Admin = psycopg.Connection[tuple[Any, ...]]


VERSIONS = (16, 18)

every_version = pytest.mark.parametrize("stack", VERSIONS, indirect=True, ids="pg{}".format)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Stack]]:
    """A server by its version, started when first asked for."""
    running: dict[int, Stack] = {}

    def of(version: int) -> Stack:
        if version not in running:
            directory = tmp_path_factory.mktemp(f"cdc{version}")
            running[version] = Stack(directory, postgres_version=version, nats=False, durable=False)
            running[version].start()
        return running[version]

    yield of
    for stack in running.values():
        stack.stop()


@pytest.fixture
def stack(request: pytest.FixtureRequest, stacks: Callable[[int], Stack]) -> Stack:
    return stacks(getattr(request, "param", VERSIONS[-1]))


@pytest.fixture
def url(stack: Stack) -> str:
    """As a role that has REPLICATION, CONNECT and SELECT, and nothing else."""
    assert stack.endpoints.postgres_url is not None
    return stack.endpoints.postgres_url.replace("user=headgate", "user=bridge")


@pytest.fixture
def admin(stack: Stack) -> Iterator[Admin]:
    """The owner of everything; leaves no slot, publication or table behind."""
    assert stack.endpoints.postgres_url is not None
    with psycopg.connect(stack.endpoints.postgres_url, autocommit=True) as connection:
        connection.execute(
            "drop schema if exists public cascade; create schema public; grant usage on schema public to public"
        )
        if connection.execute("select 1 from pg_roles where rolname = 'bridge'").fetchone() is None:
            connection.execute("create role bridge login replication")
        connection.execute("alter default privileges in schema public grant select on tables to bridge")
        connection.execute("create table t (id bigint primary key, note text)")
        connection.execute("create publication p for table t")
    connection = psycopg.connect(stack.endpoints.postgres_url, autocommit=True)
    yield connection
    connection.close()
    with psycopg.connect(stack.endpoints.postgres_url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        for (name,) in connection.execute("select slot_name from pg_replication_slots").fetchall():
            _drop(connection, name)
        for (name,) in connection.execute("select pubname from pg_publication").fetchall():
            connection.execute(f'drop publication "{name}"'.encode())


def _drop(connection: Admin, slot: str) -> None:
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
def reader(url: str, tmp_path: Path) -> Iterator[Callable[..., ReaderProcess]]:
    started: list[ReaderProcess] = []

    def start(**changes: Any) -> ReaderProcess:
        options = {"url": url, "slot": "s", "publications": ("p",), "spool": str(tmp_path / "spool"), **changes}
        started.append(ReaderProcess(ReaderOptions(**options)))
        return started[-1]

    yield start
    for process in started:
        process.stop()
