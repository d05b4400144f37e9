"""A replica of the real bridge under load: both kinds of snapshot, a new shape, zstd, verified while it runs."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import psycopg
import pytest

from headgate.consume.link import Link
from headgate.replica import Replica, TableReport, Target, open_target, stop, verify
from headgate.replica.lag import has_applied
from headgate.replica.verify import Source
from tests.integration.snapshots.conftest import Admin, Bridge, admin, bridge

__all__ = ["admin", "bridge"]  # the fixtures

pytestmark = pytest.mark.spark

TABLES = """
    create table account (id int primary key, owner text, notes text, amount numeric(12,2), doc json);
    alter table account alter notes set storage external;
    create table entry (account int, at timestamptz, note text); alter table entry replica identity full;
    insert into account select i, 'o' || i, repeat('n', 3000), i, E'[1,\\n null]' from generate_series(1, 400) i;
    insert into entry select i, now(), '' from generate_series(1, 50) i;
"""
# What is gone never comes back the same: a row that did, again and again, would look like one that never went.
UNIQUE = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
INSERT = f"insert into account values (%(key)s, 'n' || {UNIQUE}, 'x', 1)"
STATEMENTS = [
    f"{INSERT} on conflict (id) do update set owner = 'a' || {UNIQUE}",
    "update account set owner = owner || 'x' where id = %(key)s and length(owner) < 30",
    "update account set id = id + 1000 where id = %(key)s and id not in (select id - 1000 from account)",
    "delete from account where id = %(key)s + 1000",
    "update account set doc = 'null' where id = %(key)s",
    "insert into entry values (%(key)s, now(), 'e')",
    "update entry set note = note || 'u' where account = %(key)s and length(note) < 9",
    "delete from entry where account = %(key)s",
]


class Writer(threading.Thread):
    """Random transactions until it is told to stop."""

    def __init__(self, url: str, schema: str) -> None:
        super().__init__()
        self.over = threading.Event()
        self._url, self._schema = url, schema

    def run(self) -> None:
        rng = random.Random(3)
        with psycopg.connect(self._url, autocommit=True, options=f"-c search_path={self._schema}") as connection:
            while not self.over.wait(0.004):
                with connection.transaction():
                    for _ in range(rng.randint(1, 4)):
                        connection.execute(rng.choice(STATEMENTS).encode(), {"key": rng.randint(1, 300)})


@pytest.mark.parametrize(("method", "envelope"), [("export", "msgpack"), ("watermark", "msgpack"), ("export", "json")])
def test_a_live_replica_is_exact(
    bridge: Bridge,
    admin: Admin,
    method: str,
    envelope: str,
    tmp_path: Path,
) -> None:
    # Watermarks are exact only if a row that gets another key is sent whole: large values out of line are not.
    size = "30" if method == "watermark" else "3000"
    admin.execute(TABLES.replace("3000", size).encode())
    bridge.start(format=envelope, compression="zstd")
    writer = Writer(bridge.endpoints.postgres_url or "", bridge.name)
    writer.start()
    target = open_target(f"sqlite:///{tmp_path}/replica.db")
    reader = open_target(f"sqlite:///{tmp_path}/replica.db")
    try:
        asyncio.run(_follow_and_verify(bridge, admin, method, target, reader, writer))
    finally:
        writer.over.set()
        writer.join()
        target.close()
        reader.close()


async def _follow_and_verify(
    it: Bridge, owner: Admin, method: str, target: Target, reader: Target, writer: Writer
) -> None:
    nats_url = it.endpoints.nats_url or ""
    keyed = f"{it.name}.account"
    # Without a key there is no order for watermarks.
    tables = [keyed] if method == "watermark" else [keyed, f"{it.name}.entry"]
    replica = Replica(
        target, nats_url, tables, cdc_stream=it.name, schema_bucket=f"schemas-{it.name}", init_stream="INIT",
        snapshot_options={"method": method, "chunk_rows": 50},
    )  # fmt: skip
    source = Source(it.endpoints.postgres_url or "", slot=it.name)
    link = await Link.open(nats_url, name="test")
    task = asyncio.create_task(replica.run())

    async def reports() -> list[TableReport]:
        return await verify(source, reader, lambda: has_applied(link, reader, it.name, f"schemas-{it.name}"), wait_s=40)

    try:
        async with asyncio.timeout(100):
            while not replica.progress.caught_up:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.05)
            await asyncio.to_thread(owner.execute, "alter table account add extra int")
            # Rows change all the while; of those that rest, every one must be right.
            assert [report.differences for report in await reports()] == [[] for _ in tables]
            writer.over.set()
            await asyncio.to_thread(writer.join)
            owner.execute("update account set extra = 5 where id < 50")
            final = await reports()
            assert [report.is_exact for report in final] == [True] * len(tables), final
            assert reader.execute(f'select count(*) from "{keyed}" where extra = 5')[0][0] > 0
    finally:
        await stop(task)
        await link.close()
        source.close()
