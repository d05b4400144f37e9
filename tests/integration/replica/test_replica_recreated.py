"""A table that is dropped and made again while a watermark snapshot reads it, part by part."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.consume.link import Link
from headgate.replica import Replica, open_target, stop, verify
from headgate.replica.lag import has_applied
from headgate.replica.verify import Source
from tests.integration.snapshots.conftest import Admin, Bridge, admin, bridge, wait_until

__all__ = ["admin", "bridge"]  # the fixtures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 60_000
SHAPES = {"same": "id int primary key, note text", "other": "id int primary key, remark text, extra int default 5"}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_table_made_again_in_the_window_of_a_snapshot(
    bridge: Bridge, admin: Admin, tmp_path: Path, shape: str
) -> None:
    admin.execute("create table account (id int primary key, note text)")
    admin.execute(f"insert into account select i, 'old' from generate_series(1, {ROWS}) i".encode())
    bridge.start()
    asyncio.run(follow(bridge, admin, tmp_path, SHAPES[shape]))


async def follow(it: Bridge, owner: Admin, directory: Path, columns: str) -> None:
    nats_url = it.endpoints.nats_url or ""
    target = open_target(f"sqlite:///{directory}/replica.db")
    reader = open_target(f"sqlite:///{directory}/replica.db")
    replica = Replica(
        target, nats_url, [f"{it.name}.account"], cdc_stream=it.name, schema_bucket=f"schemas-{it.name}",
        init_stream="INIT", snapshot_options={"method": "watermark", "chunk_rows": 10},
    )  # fmt: skip
    source = Source(it.endpoints.postgres_url or "", slot=it.name)
    link = await Link.open(nats_url, name="test")
    task = asyncio.create_task(replica.run())
    try:
        await asyncio.to_thread(remake, owner, columns)
        async with asyncio.timeout(200):
            while True:
                reports = await verify(
                    source, reader, lambda: has_applied(link, reader, it.name, f"schemas-{it.name}"), wait_s=100
                ) if reader.exists((f"{it.name}.account",)) else []  # fmt: skip
                if [report.is_exact for report in reports] == [True]:
                    break
                assert not task.done(), task.exception()
                await asyncio.sleep(0.2)
        assert it.served is not None
        newest, *older = it.served.jobs()
        assert newest.rows == 500
        assert older or newest.replaces  # the one that was under way did not do
        assert reader.execute(f'select count(*), min(id), max(id) from "{it.name}.account"') == [(500, 1, 1_000_400)]
    finally:
        await stop(task)
        await link.close()
        source.close()
        target.close()
        reader.close()


def remake(owner: Admin, columns: str) -> None:
    """Once the second part is being read: the lock falls between two of them."""
    reading = "select 1 from pg_stat_activity where query like 'COPY (SELECT%account%WHERE%>%LIMIT%'"
    wait_until(lambda: owner.execute(reading.encode()).fetchone() is not None)
    with owner.transaction():
        owner.execute("lock table account in access exclusive mode; drop table account")
        owner.execute(f"create table account ({columns})".encode())
        # Some keys are those of rows that were read already, some lie behind all of them.
        owner.execute("insert into account select i, 'new' from generate_series(1, 100) i")
        owner.execute("insert into account select 1000000 + i, 'new' from generate_series(1, 400) i")
