"""PostgreSQL is away when a right has to be looked up: nobody is let through, and nobody is told that he may not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.install import install
from headgate.gateway.access import AclAuthority, Kind, Operation, RoleAuthority
from headgate.gateway.access.authority import STALE_S
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.principal import Principal
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import membership
from tests.gateway.access import USERS, login
from tests.gateway.servers import running
from tests.integration.gateway.test_gateway_wire import wait_for

ALICE = Principal("alice")
INSERT = "insert into kafka.acls values ('TOPIC', 'LITERAL', 't', 'User:alice', '*', 'READ', 'ALLOW')"
Pool = AsyncConnectionPool[psycopg.AsyncConnection]
Authority = AclAuthority | RoleAuthority


class Clock:
    """Time that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def with_pool(url: str, test: Callable[[Pool], Awaitable[None]]) -> None:
    async def run() -> None:
        pool: Pool = AsyncConnectionPool(url, min_size=2, timeout=2, open=False, kwargs={"autocommit": True})
        await pool.open(wait=True)
        try:
            await test(pool)
        finally:
            await pool.close()

    work: Coroutine[Any, Any, None] = run()
    asyncio.run(work)


@pytest.fixture
def url(fresh_database: str) -> str:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        install(connection)
        connection.execute(INSERT)
    return fresh_database


async def may_read(authority: Authority) -> bool:
    return "t" in await authority.allowed(ALICE, "10.0.0.1", Operation.READ, Kind.TOPIC, ("t",))


def test_what_is_too_old_is_not_used(url: str) -> None:
    async def scenario(pool: Pool) -> None:
        clock = Clock()
        authority = AclAuthority(pool, clock=clock)
        assert await may_read(authority)
        await pool.close()
        clock.now = STALE_S
        assert await may_read(authority), "it is known, and not too old"
        clock.now += 0.1
        with pytest.raises(NO_DATABASE):
            await may_read(authority)
        with pytest.raises(NO_DATABASE):
            await authority.writes_somewhere(ALICE, "10.0.0.1")

    with_pool(url, scenario)


def test_nobody_is_let_through_before_anything_is_known(url: str) -> None:
    async def scenario(pool: Pool) -> None:
        await pool.close()
        for authority in (AclAuthority(pool), RoleAuthority(pool)):
            with pytest.raises(NO_DATABASE):
                await may_read(authority)

    with_pool(url, scenario)


def test_a_doubt_during_a_look_is_not_forgotten(url: str) -> None:
    """A change is told of while the ACLs from before it are being read."""

    async def scenario(pool: Pool) -> None:
        authority = AclAuthority(pool, clock=Clock())
        async with pool.connection() as connection:
            reading = asyncio.create_task(authority.refresh_on(connection))
            await asyncio.sleep(0)
            authority.doubt()
            await reading
        async with pool.connection() as connection:
            await connection.execute("delete from kafka.acls")
        assert not await may_read(authority)

    with_pool(url, scenario)


def test_another_database_under_the_same_version(url: str) -> None:
    """A dump was restored: the version says nothing. Whoever has lost the connection reads everything."""

    async def scenario(pool: Pool) -> None:
        authority = AclAuthority(pool, clock=Clock())
        assert await may_read(authority)
        async with pool.connection() as connection:
            await connection.execute("alter table kafka.acls disable trigger note; delete from kafka.acls")
        authority.doubt()
        assert not await may_read(authority)

    with_pool(url, scenario)


@pytest.mark.parametrize("authorization", ["acls", "roles"])
def test_clients_are_told_to_try_again(
    fresh_database: str, authorization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By codes after which they do: with others Java's clients end."""
    url = make_conninfo(fresh_database, dbname="postgres")
    database = sql.Identifier(str(conninfo_to_dict(fresh_database)["dbname"]))
    beat = membership.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    with running(fresh_database, users=USERS, authorization=authorization) as gateway:
        authority = gateway.gateway.services.authority
        with login(gateway, "eve") as client, psycopg.connect(url, autocommit=True) as admin:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
            undecided = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE

            def outcome() -> tuple[int, int]:
                read = client.fetch("t").responses[0].partitions[0].error_code
                return read, client.ask(membership.HEARTBEAT, 4, beat).error_code

            assert outcome() == denied
            admin.execute(sql.SQL("alter database {} allow_connections false").format(database))
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                [database.as_string()[1:-1]],
            )
            later = time.monotonic() + STALE_S + 1
            monkeypatch.setattr(authority, "_clock", lambda: later)
            assert outcome() == undecided
            admin.execute(sql.SQL("alter database {} allow_connections true").format(database))
            wait_for(lambda: outcome() == denied, "the database is back")


def test_two_who_ask_at_once_wait_for_one_look(url: str) -> None:
    async def scenario(pool: Pool) -> None:
        authority = AclAuthority(pool, clock=Clock())
        assert all(await asyncio.gather(*(may_read(authority) for _ in range(100))))

    with_pool(url, scenario)
