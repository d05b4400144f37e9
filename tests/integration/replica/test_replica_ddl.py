"""The source's catalog moves under a live replica of the real bridge: whatever was done, the rows become the same.

Compared by plain SQL on both sides, not by the replica's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from headgate.replica import Replica, open_target, stop
from tests.integration.snapshots.conftest import Admin, Bridge, admin, bridge

__all__ = ["admin", "bridge"]  # the fixtures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

TABLES = """
    create type mood as enum ('sad', 'glad'); create type pair as (x int, y text);
    create table t (id int primary key, v text); insert into t select i, 'v' || i from generate_series(1, 20) i;
    create table u (id int primary key, v text); insert into u values (100, 'u');
    create table feels (id int primary key, m mood, p pair); insert into feels values (1, 'sad', '(1,a)');
    create table parted (id int primary key, v text) partition by range (id);
    create table low partition of parted for values from (0) to (100);
    create table high partition of parted for values from (100) to (200);
    insert into parted values (1, 'low'), (101, 'high');
"""
SWAP = "begin; alter table t rename to w; alter table u rename to t; alter table w rename to u; commit"
# Each is done to a replica that is up to date; none of those behind "unseen" leaves a row in the stream.
STEPS = [
    "insert into parted values (2, 'more'), (102, 'more')",
    "create table fresh (id int primary key); insert into fresh values (1)",
    f"{SWAP}; insert into t values (101, 'was u')",
    "drop table u; create table u (id int primary key, v text); insert into u values (7, 'new')",
    "alter table t add extra int; update t set extra = 5",
    # unseen
    "alter table t alter v type text using v || '!'",
    "alter type mood rename value 'sad' to 'blue'",
    "alter type pair rename attribute x to z",
    "alter table parted detach partition low",
    "create table next as select 301 as id, text 'came along' as v; alter table next alter id set not null",
    "alter table parted attach partition next for values from (300) to (400)",
    "truncate high",
    "drop table next",
    "create table empty (id int primary key)",
]


def source_rows(connection: Admin, table: str) -> list[tuple[Any, ...]]:
    columns = connection.execute(f"select * from {table} limit 0".encode()).description or []
    texts = ", ".join("to_json(p)::text" if c.name == "p" else f"{c.name}::text" for c in columns)
    rows = connection.execute(f"select {texts} from {table}".encode()).fetchall()
    return sorted(tuple(_plain(value) for value in row) for row in rows)


def copied_rows(path: Path, table: str) -> list[tuple[Any, ...]] | None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(f'select * from "{table}"').fetchall()
        except sqlite3.OperationalError:
            return None
    return sorted(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> str:
    return "" if value is None else str(value).replace(" ", "")


def test_whatever_is_altered_the_rows_become_the_same(bridge: Bridge, admin: Admin, tmp_path: Path) -> None:
    admin.execute(f"drop publication if exists {bridge.name}".encode())
    what = f"for tables in schema {bridge.name} with (publish_via_partition_root)"
    admin.execute(f"create publication {bridge.name} {what}".encode())
    admin.execute(TABLES.encode())
    admin.execute(resources.files("headgate.sources.postgres_cdc").joinpath("ddl_trigger.sql").read_bytes())
    path = tmp_path / "replica.db"
    target = open_target(f"sqlite:///{path}")
    try:
        bridge.start()
        asyncio.run(follow(bridge, admin, target, path))
    finally:
        target.close()
        admin.execute("drop schema headgate_ddl cascade")


async def follow(it: Bridge, owner: Admin, target: Any, path: Path) -> None:
    replica = Replica(
        target, it.endpoints.nats_url or "", "*", cdc_stream=it.name, schema_bucket=f"schemas-{it.name}",
        init_stream="INIT",
    )  # fmt: skip
    task = asyncio.create_task(replica.run())
    try:
        await same(it, owner, path, task, "the beginning")
        for statements in STEPS:
            await asyncio.to_thread(owner.execute, statements.encode())
            await same(it, owner, path, task, statements)
        assert replica.aside == {}
    finally:
        await stop(task)


async def same(it: Bridge, owner: Admin, path: Path, task: asyncio.Task[None], step: str) -> None:
    query = (
        "select c.relname from pg_class c where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p')"
        " and not c.relispartition order by 1"
    )
    tables = [name for (name,) in owner.execute(query, [it.name]).fetchall()]
    wanted = {table: source_rows(owner, table) for table in tables}
    found: dict[str, Any] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while found != wanted:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.1)
                found = {table: copied_rows(path, f"{it.name}.{table}") for table in tables}
    assert found == wanted, step
