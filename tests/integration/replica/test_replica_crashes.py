"""Killed, stopped and cut off anywhere, a replica ends exact."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import duckdb
import psycopg
import pytest

from headgate.replica import Replica, open_target, stop, verify
from headgate.replica.verify import Source
from tests.snapshots import Origin, fresh_database, shared_stack, target_url

TABLES = """
    create table users (id int primary key, name text);
    create table orders (id int primary key, user_id int, note text);
    insert into users select i, 'user ' || i from generate_series(1, 10) i;
    insert into orders select i, i, 'note' from generate_series(1, 10) i;
"""


COMMAND = "from headgate.cli.replica import replica; replica()"
# The same as `replica run`, without all the other commands, which take a second to import.
RUN = """
import asyncio, sys
from headgate.replica import Replica, open_target
once = "--once" in sys.argv
asyncio.run(Replica(open_target(sys.argv[1]), sys.argv[2], ["users", "orders"]).run(once=once))
"""


async def process(program: str, *arguments: str, failpoint: str = "") -> tuple[int, str, str]:
    """In a process of its own: how it ended, and what it said."""
    environment = {**os.environ, "HEADGATE_FAILPOINT": failpoint} if failpoint else dict(os.environ)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments,
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(started.communicate(), 30)
    assert started.returncode is not None
    return started.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_killed_at_every_step(kind: str, tmp_path: Path) -> None:
    async def test() -> None:
        with fresh_database() as database:
            origin = await Origin.open(database, TABLES)
            target = f"{kind}:///{tmp_path}/replica.db"
            points = ["snapshot_rows", "before_swap", "after_swap", "before_commit", "after_commit"]
            for number, point in enumerate(points if kind == "sqlite" else points[2:4]):
                if number:
                    origin.sql(
                        f"begin; insert into users values ({100 + number}, '');"
                        f"update orders set note = '{number}'; commit"
                    )
                    await origin.pump()
                code, _, err = await process(RUN, target, database.nats_url, "--once", failpoint=f"replica.{point}")
                assert code == -signal.SIGKILL, (point, err)
            code, _, err = await process(RUN, target, database.nats_url, "--once")
            assert code == 0, err
            place = ("--target", target, "--nats", database.nats_url)
            code, out, err = await process(
                COMMAND, "verify", *place, "--source", database.url, "--slot", "none", "--json"
            )
            assert code == 0, err
            reports = json.loads(out)
            assert [(each["table"], each["exact"]) for each in reports] == [
                ("public.orders", True),
                ("public.users", True),
            ]
            code, out, err = await process(COMMAND, "status", *place, "--json")
            assert code == 0, err
            found = json.loads(out)
            assert found["position"]["sequence"] == found["last_sequence"]
            assert {each["table"]: each["rows"] for each in found["tables"]} == {
                "public.orders": 10,
                "public.users": reports[1]["rows"],
            }
            await origin.close()

    asyncio.run(test())


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    async def test() -> None:
        with fresh_database() as database:
            origin = await Origin.open(database, TABLES)
            running = await asyncio.create_subprocess_exec(
                sys.executable, "-c", COMMAND, "run",
                "--target", f"sqlite:///{tmp_path}/r.db", "--nats", database.nats_url,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert running.stderr is not None
            async with asyncio.timeout(30):
                while b"rows of the snapshot are in" not in await running.stderr.readline():
                    assert running.returncode is None
                running.send_signal(signal.SIGINT)
                rest = await running.stderr.read()
                assert await running.wait() == 0, rest
            assert b"everything that was applied is kept" in rest
            assert b"Traceback" not in rest
            await origin.close()

    asyncio.run(test())


def held(kind: str, target: str) -> dict[str, set[tuple[object, ...]]]:
    """The target's rows, read by its own driver and by nothing of the replica."""
    queries = {"users": "select id, name from users", "orders": "select id, user_id, note from orders"}
    if kind == "sqlite":
        with sqlite3.connect(target.removeprefix("sqlite:///")) as lite:
            return {table: set(lite.execute(query)) for table, query in queries.items()}
    if kind == "duckdb":
        with duckdb.connect(target.removeprefix("duckdb:///"), read_only=True) as duck:
            return {table: set(duck.execute(query).fetchall()) for table, query in queries.items()}
    with psycopg.connect(target) as connection:
        return {table: set(connection.execute(query.encode()).fetchall()) for table, query in queries.items()}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgresql"])
def test_killed_in_a_loop_under_load(kind: str, tmp_path: Path) -> None:
    """Transactions also touch a table that the replica does not have, so it cannot see every end of one."""

    async def test() -> None:
        with fresh_database() as database, fresh_database() as other, ExitStack() as stack:
            origin = await Origin.open(database, f"{TABLES}; create table unread (id bigserial primary key)")
            writer = Writer(database.url, "insert into unread default values")
            writer.start()
            stack.callback(writer.join)
            stack.callback(writer.over.set)
            target = target_url(kind, tmp_path, other)
            delays = random.Random(kind)
            for _ in range(6):
                running = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", RUN, target, database.nats_url, stderr=asyncio.subprocess.PIPE
                )
                until = asyncio.get_running_loop().time() + delays.uniform(1.0, 2.2)
                while asyncio.get_running_loop().time() < until:
                    await origin.pump()
                assert running.returncode is None, await running.communicate()
                running.kill()
                await running.communicate()
            writer.over.set()
            await asyncio.to_thread(writer.join)
            await origin.pump()
            code, _, err = await process(RUN, target, database.nats_url, "--once")
            assert code == 0, err
            expected = {
                "users": set(origin.sql("select id, name from users")),
                "orders": set(origin.sql("select id, user_id, note from orders")),
            }
            assert held(kind, target) == expected
            await origin.close()

    async def within_time() -> None:
        async with asyncio.timeout(90):
            await test()

    asyncio.run(within_time())


class Writer(threading.Thread):
    """Random transactions until it is told to stop, each with one more statement in its midst."""

    def __init__(self, url: str, also: str = "select 1") -> None:
        super().__init__(daemon=True)
        self._url = url
        self._also = also
        self._rng = random.Random(7)
        self.over = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self.over.wait(0.005):
                with connection.transaction():
                    connection.execute(self._also.encode())
                    for _ in range(self._rng.randint(1, 6)):
                        if self._rng.random() < 0.3:
                            connection.execute(self._also.encode())
                        key, other = self._rng.randint(1, 60), self._rng.randint(1, 60)
                        connection.execute(self._statement().encode(), {"key": key, "other": other})

    def _statement(self) -> str:
        return self._rng.choice(
            [
                "insert into users values (%(key)s, 'n' || %(other)s) on conflict (id) do update set name = 'again'",
                "update users set name = name || 'x' where id = %(key)s and length(name) < 40",
                "delete from users where id = %(key)s",
                "insert into orders values (%(key)s, %(other)s, '') on conflict do nothing",
                "update orders set id = %(other)s where id = %(key)s and %(other)s not in (select id from orders)",
                "delete from orders where id = %(key)s",
            ]
        )


@pytest.mark.parametrize("method", ["export", "filter"])
def test_restarts_under_load(method: str, tmp_path: Path) -> None:
    """The replica is cancelled and started again, and NATS too, while the source changes and snapshots are taken."""

    async def test() -> None:
        with fresh_database() as database, ExitStack() as stack:
            origin = await Origin.open(database, TABLES, method=method)
            writer = Writer(database.url)
            writer.start()
            stack.callback(writer.join)
            stack.callback(writer.over.set)
            target = open_target(f"sqlite:///{tmp_path}/r.db")
            server = shared_stack().nats
            assert server is not None
            for turn in range(4):
                replica = Replica(target, database.nats_url, ["users", "orders"], repair=["users"] if turn == 2 else [])
                task = asyncio.create_task(replica.run())
                for _ in range(10):
                    await origin.pump()
                    assert not task.done(), task.exception()
                if turn == 1:
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                    await origin.pump()
                await stop(task)
                assert task.cancelled()
            writer.over.set()
            await asyncio.to_thread(writer.join)
            await origin.pump()
            await Replica(target, database.nats_url, ["users", "orders"]).run(once=True)

            async def applied() -> bool:
                return True

            source = Source(database.url, slot="none")
            reports = await verify(source, target, applied)
            source.close()
            target.close()
            assert [(report.table.table, report.is_exact) for report in reports] == [("orders", True), ("users", True)]
            await origin.close()

    async def within_time() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(within_time())
