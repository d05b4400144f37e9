"""A commit wakes the dispatcher, and the dispatcher the reader; who dies on duty is stood in for."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.waiting import Wait

from headgate.broker import BrokerClient, duties, reading
from headgate.postgres import QuietConnection
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until

WANTED = "select 1 from wake_until where to_timestamp(last_value) > clock_timestamp()"


async def heard(listener: psycopg.AsyncConnection[Any], publisher: psycopg.AsyncConnection[Any]) -> int:
    """How many notifications come before one that is sent now."""
    await publisher.execute("select pg_notify('headgate_published', 'the end')")
    count = 0
    async for note in listener.notifies(timeout=20):
        if note.payload == "the end":
            return count
        count += 1
    raise AssertionError("the last one did not come")


def test_nobody_waits_for_a_timer(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pauses of minutes, an event that is published by plain SQL is handled at once."""
    for module, name in ((duties, "POLL_S"), (duties, "IDLE_S"), (reading, "LOOK_S")):
        monkeypatch.setattr(module, name, 300.0)

    async def story() -> None:
        seen = Seen()
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, seen, name="h")
            client._duties.published()
            await until(db, WANTED)
            for number in range(20):
                await db.execute("select publish('t', to_jsonb(%s::int))", [number])
                await seen.wait_for(number + 1)

    asyncio.run(story())


def test_those_who_publish_notify_only_who_wants_it(database: str) -> None:
    async def story() -> None:
        async with await connect(database) as db, await connect(database) as listener:
            await listener.execute("listen headgate_published")
            await db.execute("select publish('t', '1')")
            assert await heard(listener, db) == 0
            await db.execute("select heartbeat_v1('somebody', true)")
            await db.execute("select publish('t', '1')")
            await db.execute("insert into events (topic, payload) values ('t', '1')")
            assert await heard(listener, db) == 2
            await db.execute("select set_config('headgate.dispatching', 'on', false)")
            await db.execute("select poll_for_events()")
            assert await heard(listener, db) == 0
            await db.execute("reset headgate.dispatching")
            await db.execute("select heartbeat_v1('somebody', false)")
            await db.execute("select publish('t', '1')")
            assert await heard(listener, db) == 0

    asyncio.run(story())


def test_a_busy_dispatcher_wants_no_notifications(database: str) -> None:
    async def story() -> None:
        seen = Seen()
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, seen, name="h")
            await until(db, WANTED)
            wanted = []

            async def publish() -> None:
                for _ in range(50):
                    many = "select count(publish('t', '1')) from generate_series(1, 200)"
                    await db.execute(many)
                    wanted.append(bool(await (await db.execute(WANTED)).fetchone()))

            await publish()
            assert not all(wanted)
            await seen.wait_for(10_000)
            await until(db, WANTED)  # and now it does again

    asyncio.run(story())


def test_who_dies_on_duty_is_stood_in_for(database: str) -> None:
    """A client that has been there longest, and is taken for alive, does nothing: the next one does not wait."""

    async def story() -> None:
        seen = Seen()
        async with await connect(database) as db:
            dead = f"insert into clients (id) values ('{duties.PREFIX}0') on conflict (id)"
            await db.execute(f"{dead} do nothing".encode())
            async with running(BrokerClient(database, group="g")) as client:
                await client.register_reliable_handler(ALL, seen, name="h")
                await eventually(lambda: client._duties._is_next)
                assert not client._duties.on_duty
                began = time.monotonic()
                await db.execute("select publish('t', '1')")
                await seen.wait_for(1)
                assert time.monotonic() - began < 8, "that was the look of those who are not next"

    asyncio.run(story())


def test_programs_with_few_rights_wake_and_are_woken(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer dispatches and handles what a publisher has inserted."""
    for module, name in ((duties, "IDLE_S"), (reading, "LOOK_S")):
        monkeypatch.setattr(module, name, 300.0)
    roles = {part: f"{part}_{uuid4().hex[:8]}" for part in ("consumer", "publisher")}
    with psycopg.connect(database, autocommit=True) as admin:
        for part, role in roles.items():
            admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
            admin.execute("select headgate.grant_usage(%s, %s)", [part, role])

        async def story() -> None:
            seen = Seen(lambda event: event.attempt == 1)
            consumer = BrokerClient(make_conninfo(database, user=roles["consumer"]), group="g")
            async with running(consumer), await connect(make_conninfo(database, user=roles["publisher"])) as publisher:
                await consumer.register_reliable_handler(ALL, seen, name="h", retries_s=[0])
                await eventually(lambda: consumer._duties._wanted)
                await publisher.execute("insert into events (topic, payload) values ('t', '1')")
                await seen.wait_for(1)
                stream = await consumer.register_fire_and_forget(ALL)
                await publisher.execute("select publish('t', '2')")
                assert (await anext(stream)).payload in (1, 2)

        try:
            asyncio.run(story())
        finally:
            for role in roles.values():
                admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
                admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_a_listener_sleeps_until_it_is_told_or_cut_off(database: str) -> None:
    """The driver's own connections look up ten times a second, which is most of what an idle client takes."""
    looks = 0

    def look() -> PQGen[None]:
        nonlocal looks
        while True:
            yield Wait.R
            looks += 1

    async def main() -> None:
        async with await QuietConnection.connect(database, autocommit=True) as listener:
            with pytest.raises(Exception, match="timeout"):
                await listener.wait(look(), timeout=0.5)
            assert looks <= 1  # when its time was over
            await listener.execute("listen heard")
            async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
                await other.execute("notify heard, 'x'")
                assert [note.payload async for note in listener.notifies(timeout=30, stop_after=1)] == ["x"]
                waiting = asyncio.create_task(anext(listener.notifies()))
                await other.execute("select pg_terminate_backend(%s)", [listener.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                await asyncio.wait_for(waiting, 30)

    asyncio.run(main())
