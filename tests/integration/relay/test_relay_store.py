"""The store, the same over SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headgate.embedded import Endpoints
from headgate.model import ConnectError, StateError
from headgate.relay.store import AccountRow, HostRow, HostStatus, Store, open_store
from headgate.relay.store.backend import scripts
from headgate.relay.store.postgres import PostgresBackend
from headgate.relay.store.sqlite import SqliteBackend
from headgate.relay.store.store import BATCH
from tests.integration.relay.relay_follow import run

Open = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store each time it is called."""
    if request.param == "sqlite":
        yield lambda **limits: open_store(tmp_path / "relay.sqlite", **limits)
        return
    endpoints: Endpoints = request.getfixturevalue("endpoints")
    schema, url = f"relay_{uuid.uuid4().hex[:12]}", endpoints.postgres_url
    assert url is not None
    yield lambda **limits: open_store(url, schema=schema, **limits)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {schema} cascade".encode())


def did(number: int) -> str:
    return f"did:plc:{number:024d}".replace("0", "a").replace("1", "b").replace("8", "y").replace("9", "z")


def row(number: int, rev: str = "3kaaaaaaaaa22") -> AccountRow:
    return AccountRow(did(number), "pds.example", rev, bytes((1, number % 256)), b"\x00head", True, None, None)


def test_accounts_are_seen_before_they_are_written_and_found_again_after(opened: Open) -> None:
    async def test() -> None:
        full = replace(row(1), active=False, status="deactivated", local_status="takendown")
        async with opened() as store:
            assert await store.get(full.did) is None
            store.put(full)
            assert store.known(full.did) == full
            assert store.unwritten == 1
            assert await store.load([full.did, did(2)]) == {full.did: full}
            assert full.combined == (False, "takendown")
        async with opened() as store:
            assert store.known(full.did) is None
            assert await store.load([full.did, did(2)]) == {full.did: full}
            assert store.known(full.did) == full

    run(test())


def test_many_accounts_go_out_in_batches_and_reads_see_them_all_the_while(opened: Open) -> None:
    async def test() -> None:
        count = 2 * BATCH + 7
        async with opened(cached=10, unwritten=2 * BATCH) as store:
            for number in range(count):
                store.put(row(number))
                await store.room()
            for number in (0, BATCH, count - 1):
                assert await store.get(did(number)) == row(number)
            flushing = asyncio.create_task(store.flush())
            await asyncio.sleep(0)
            store.put(row(3, "3kzzzzzzzzz22"))  # while the older one may be on its way
            await flushing
            assert await store.get(did(3)) == row(3, "3kzzzzzzzzz22")
        async with opened() as store:
            rows, after = [], ""
            while page := await store.list_accounts(after, 400):
                rows += page
                after = page[-1].did
            assert [one.did for one in rows] == sorted(did(number) for number in range(count))
            assert {one.rev for one in rows if one.did == did(3)} == {"3kzzzzzzzzz22"}

    run(test())


def test_hosts_and_bans_are_kept_and_accounts_are_counted_anew(opened: Open) -> None:
    async def test() -> None:
        host = HostRow("pds.example", HostStatus.THROTTLED, 2**53 - 1, 9, 77, True, 3, 1_790_000_000, 1_780_000_000)
        async with opened() as store:
            store.put_host(host)
            store.put(row(1))
            await store.ban_domain("Bad.Example.")
            await store.ban_domain("worse.example")
            await store.ban_domain("worse.example", banned=False)
        async with opened() as store:
            assert store.hosts() == [replace(host, account_count=1)]
            assert store.domain_bans() == ["bad.example"]
            assert store.is_banned("PDS.bad.example:443")
            assert not store.is_banned("example")
            assert store.change_host("pds.example", cursor=5).cursor == 5

    run(test())


def test_taken_down_accounts_are_listed_alone(opened: Open) -> None:
    async def test() -> None:
        async with opened() as store:
            store.put(row(1))
            store.put(replace(row(2), local_status="suspended"))
            assert [one.did for one in await store.list_accounts(taken_down=True)] == [did(2)]

    run(test())


def test_what_the_log_knows_better_is_caught_up_with(opened: Open) -> None:
    async def test() -> None:
        async with opened() as store:
            store.put(replace(row(1), local_status="takendown"))
            assert not await store.catch_up(row(1, "3jzzzzzzzzz22"))
            assert await store.catch_up(row(1, "3kzzzzzzzzz22"))
            assert await store.catch_up(row(2))
            newer = await store.get(did(1))
            assert newer is not None
            assert (newer.rev, newer.local_status) == ("3kzzzzzzzzz22", "takendown")

    run(test())


def test_a_connection_that_broke_is_opened_again(endpoints: Endpoints) -> None:
    async def test() -> None:
        schema, url = f"relay_{uuid.uuid4().hex[:12]}", endpoints.postgres_url
        assert url is not None
        async with open_store(url, schema=schema) as store:
            store.put(row(1))
            await store.flush()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headgate relay'"
                )
                store.put(row(2))
                await store.flush()
                assert [one.did for one in await store.list_accounts()] == sorted((did(1), did(2)))
                connection.execute(f"drop schema {schema} cascade".encode())

    run(test())


def test_rows_wait_while_the_file_cannot_be_written(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "relay.sqlite"
        async with open_store(path) as store:
            store._backend._connection.execute("pragma busy_timeout=1")  # type: ignore[attr-defined]
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("begin immediate")
            store.put(row(1))
            with pytest.raises(Exception, match="cannot write"):
                await store.flush()
            assert store.unwritten == 1
            assert await store.get(did(1)) == row(1)
            other.execute("rollback")
            other.close()
            await store.flush()
            assert store.unwritten == 0

    run(test())


def test_a_place_that_is_no_store_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "text").write_text("not a database, and long enough to be read as one" * 50)
        with pytest.raises(StateError):
            async with open_store(tmp_path / "text"):
                pass
        with pytest.raises(ConnectError):
            async with open_store("postgresql://127.0.0.1:1/none?connect_timeout=2"):
                pass

    run(test())


def test_a_store_of_before_versions_is_taken_over(endpoints: Endpoints, tmp_path: Path) -> None:
    """As headgate left it when its relay kept no version."""
    with sqlite3.connect(tmp_path / "relay.sqlite") as file:
        file.executescript(scripts("sqlite")[0])
        file.execute("insert into domain_bans values ('bad.example')")
    file.close()
    schema, url = f"relay_{uuid.uuid4().hex[:12]}", endpoints.postgres_url
    assert url is not None
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}; set search_path = {schema}".encode())
        connection.execute(scripts("postgres")[0].encode())
        connection.execute("insert into domain_bans values ('bad.example')")
        try:
            for backend in (SqliteBackend(tmp_path / "relay.sqlite"), PostgresBackend(url, schema)):
                assert backend.domain_bans() == ["bad.example"]
                backend.close()
            assert connection.execute("select version, name from migrations").fetchall() == [(1, "01_store.sql")]
        finally:
            connection.execute(f"drop schema {schema} cascade".encode())


def test_a_newer_store_is_left_alone(endpoints: Endpoints, tmp_path: Path) -> None:
    path = tmp_path / "relay.sqlite"
    SqliteBackend(path).close()
    with sqlite3.connect(path) as file:
        file.execute("pragma user_version = 99")
    file.close()
    with pytest.raises(StateError, match="version 99"):
        SqliteBackend(path)
    schema, url = f"relay_{uuid.uuid4().hex[:12]}", endpoints.postgres_url
    assert url is not None
    PostgresBackend(url, schema).close()
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute(f"insert into {schema}.migrations (version, name) values (99, 'tomorrow')".encode())
            with pytest.raises(StateError, match="version 99"):
                PostgresBackend(url, schema)
        finally:
            connection.execute(f"drop schema {schema} cascade".encode())
