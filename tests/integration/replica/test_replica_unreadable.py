"""A row that cannot become an event, through a real bridge: told, kept, and the table that lacks it set aside alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from headgate.consume.link import Link
from headgate.embedded import Endpoints
from headgate.replica import Replica, open_target, verify
from headgate.replica.lag import has_applied
from headgate.replica.verify import Source
from tests.integration.snapshots.conftest import Admin, Bridge, admin, drop_slot, wait_until

__all__ = ["admin"]  # the fixture

pytestmark = pytest.mark.spark


@pytest.fixture
def ascii_url(endpoints: Endpoints, admin: Admin) -> Iterator[str]:
    name = f"ascii_{uuid4().hex[:8]}"
    admin.execute(f"create database {name} encoding 'SQL_ASCII' template template0 locale 'C'".encode())
    yield make_conninfo(endpoints.postgres_url or "", dbname=name)
    drop_slot(admin, name)
    admin.execute(f"drop database {name} with (force)".encode())


@pytest.mark.parametrize("format", ["msgpack", "json"])
def test_one_row_that_is_no_utf8(
    ascii_url: str,
    endpoints: Endpoints,
    spark: SparkSession,
    tmp_path: Path,
    format: str,  # noqa: A002
) -> None:
    with psycopg.connect(ascii_url, autocommit=True, client_encoding="SQL_ASCII") as connection:
        name = connection.info.dbname
        connection.execute("create table good (id int primary key, note text); insert into good values (1, 'a')")
        connection.execute("create table bad (id int primary key, note text); insert into bad values (1, 'a')")
        connection.execute(f"create publication {name} for all tables".encode())
        it = Bridge(name, replace(endpoints, postgres_url=ascii_url), spark, tmp_path / "data")
        it.start(format=format)
        try:
            connection.execute("insert into bad values (2, E'\\xff'); insert into good values (2, 'b')")
            asyncio.run(follow(it, connection, tmp_path))
        finally:
            it.stop()


async def follow(it: Bridge, connection: Admin, directory: Path) -> None:
    nats_url = it.endpoints.nats_url or ""
    target = open_target(f"sqlite:///{directory}/replica.db")
    options: dict[str, Any] = {"cdc_stream": it.name, "schema_bucket": f"schemas-{it.name}", "init_stream": "INIT"}
    link = await Link.open(nats_url, name="test")
    source = Source(it.endpoints.postgres_url or "", slot=it.name)

    async def delivered() -> None:
        lsn = source.lsn()
        await asyncio.to_thread(wait_until, lambda: (source.delivered() or 0) >= lsn)

    try:
        await delivered()
        assert it.supervisor is not None
        assert it.supervisor.report.source_details["rows_set_aside"] == 1
        assert it.supervisor.report.status == "running"
        replica = Replica(target, nats_url, "*", **options)
        await replica.run(once=True)
        [(table, reason)] = replica.aside.items()
        assert table.table == "bad"
        assert "public.bad.note: a column is not UTF-8" in reason
        assert target.execute("select id, note from good order by id") == [(1, "a"), (2, "b")]
        reports = await verify(source, target, lambda: has_applied(link, target, it.name, f"schemas-{it.name}"))
        assert {each.table.table: each.is_exact for each in reports} == {"bad": False, "good": True}
        # Whoever mends the row has the table again at the next start.
        await asyncio.to_thread(connection.execute, "update bad set note = 'mended' where id = 2")
        await delivered()
        replica = Replica(target, nats_url, "*", **options)
        await replica.run(once=True)
        assert not replica.aside
        assert target.execute("select id, note from bad order by id") == [(1, "a"), (2, "mended")]
    finally:
        source.close()
        await link.close()
        target.close()
