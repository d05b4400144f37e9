"""What the broker promises to those who build on it, each told as a story of clients."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.broker import BrokerClient, Event, Message, Subscription
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until

EXAMPLE = Path(__file__).parents[3] / "examples" / "broker.py"


def test_at_least_once_also_if_the_reader_dies(database: str) -> None:
    """It has handled some and acknowledged nothing: the next one handles all, when the lease is over."""

    async def story() -> None:
        first, second, stuck = Seen(), Seen(), asyncio.Event()

        async def die(events: Sequence[Event]) -> None:
            await first(events)
            await stuck.wait()

        async with await connect(database) as db:
            await db.execute("update config set value = '300 milliseconds' where key = 'lease'")
            dying = BrokerClient(database, group="g", end_deadline_s=0)
            async with dying:
                await dying.register_reliable_handler(ALL, die, name="h")
                await dying.publish(*[Message("t", number) for number in range(20)])
                task = asyncio.create_task(dying.run())
                await first.wait_for(1)
                task.cancel()  # from now on it neither reads nor says anything
                await asyncio.gather(task, return_exceptions=True)
                async with running(BrokerClient(database, group="g")) as client:
                    await client.register_reliable_handler(ALL, second, name="h")
                    await db.execute("select pg_sleep(0.4)")
                    await client.publish(Message("t", 20))
                    assert await second.wait_for(21) == list(range(21))

    asyncio.run(story())


def test_a_hundred_listeners_of_a_room_share_one_subscription(database: str) -> None:
    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            room = Subscription("s.params @> jsonb_build_object('room', e.payload -> 'room')", {"room": 7})
            streams = [await client.register_fire_and_forget(room) for _ in range(100)]
            await client.publish(Message("said", {"room": 8}), Message("said", {"room": 7}))
            async with asyncio.timeout(20):
                got = [(await anext(stream)).payload for stream in streams]
            assert got == [{"room": 7}] * 100
            counts = "select (select count(*) from subscriptions), (select count(*) from deliveries)"
            assert await (await db.execute(counts.encode())).fetchone() == (1, 1)

    asyncio.run(story())


def test_a_poison_event_takes_nobody_with_it(database: str) -> None:
    """It fails each time; those that were in its batch are tried again alone, and succeed."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            handled: list[int] = []

            async def handle(events: Sequence[Event]) -> None:
                if any(event.payload == 3 for event in events):
                    raise ValueError("poison")
                handled.extend(event.payload for event in events)

            await client.register_reliable_handler(ALL, handle, name="h", retries_s=[0, 0])
            await client.publish(*[Message("t", number) for number in range(6)])
            row = await until(db, "select payload, attempts, error from dead_letters")
            assert row == (3, 3, "ValueError: poison")
            await until(db, "select 1 from group_status where cursor = last_pos")
            assert sorted(handled) == [0, 1, 2, 4, 5]
            # Whoever has mended the handler gives it back.
            await db.execute("update events set payload = '30'")
            await db.execute("update dead_letters set payload = '30'")
            await db.execute("select redrive(array(select id from dead_letters))")
            await until(db, "select 1 where not exists (select from dead_letters)")
            await eventually(lambda: 30 in handled)

    asyncio.run(story())


def test_a_subscription_that_expires_keeps_its_backlog_for_who_comes_back(database: str) -> None:
    """H16: the client asserts its subscription before anybody removes it."""

    async def story() -> None:
        wanted = Subscription.to_topics("t", expiry=timedelta(seconds=1))
        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            sid = await client.subscribe(wanted)
            await client.publish(*[Message("t", number) for number in range(10)])
            await db.execute("select poll_for_events()")
        async with await connect(database) as db:
            await db.execute("select maintain(now() + interval '1 minute')")
            await until(db, "select 1 from subscriptions where expired_at is not null")
            seen = Seen()
            async with running(BrokerClient(database, group="g")) as client:
                registered = await client.register_reliable_handler(wanted, seen, name="h")
                assert registered.subscription_id == sid
                assert await seen.wait_for(10) == list(range(10))

    asyncio.run(story())


def test_an_urgent_group_does_not_wait_for_a_busy_one(database: str) -> None:
    """What is published behind a large backlog is handled while that still waits for its slow handler."""

    async def story() -> None:
        urgent, over, handled = Seen(), asyncio.Event(), 0

        async def slow(events: Sequence[Event]) -> None:
            nonlocal handled
            handled += len(events)
            await over.wait()

        async with (
            running(BrokerClient(database, group="bulk")) as bulk,
            running(BrokerClient(database, group="urgent")) as quick,
        ):
            await bulk.register_reliable_handler(Subscription.to_patterns("bulk.*"), slow, name="h", batch_size=10)
            await quick.register_reliable_handler(Subscription.to_topics("urgent"), urgent, name="h")
            await bulk.publish(*(Message(f"bulk.{number % 7}", number) for number in range(20_000)))
            await bulk.publish(Message("urgent", "now"))
            assert await urgent.wait_for(1) == ["now"]
            await eventually(lambda: handled > 0)
            assert handled <= 10
            over.set()

    asyncio.run(story())


@pytest.mark.parametrize("runs", [2], ids=["twice"])
def test_the_example_runs(database: str, runs: int) -> None:
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, EXAMPLE, database], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout == "hello ann\n"
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from users").fetchone() == (runs,)


def in_docs(name: str, language: str) -> list[str]:
    """The blocks of a language in a file, as somebody would copy them."""
    text = (EXAMPLE.parents[1] / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_what_docs_and_readme_say_works_on_one_database(database: str, tmp_path: Path) -> None:
    """The statements as they are written, beside one's own tables, and then the program: none is in another's way."""
    statements = [block for block in in_docs("docs/broker.md", "sql") if "headgate." in block]
    assert len(statements) >= 3
    [program] = [block for block in in_docs("README.md", "python") if "BrokerClient" in block]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    url = make_conninfo(database, options="-c search_path=public")  # the user of the test is named as the schema is
    command = [sys.executable, str(tmp_path / "program.py"), url]
    with psycopg.connect(url, autocommit=True) as connection:
        made = [role for role in ("shop", "mailer", "dashboard") if not _has_role(connection, role)]
        for role in made:
            connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        try:
            for _ in range(2):
                for block in statements:
                    connection.execute(block.encode())
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
                # The second time also what came in between, in one call or in two.
                assert set(done.stdout.split()) == {"hello", "ann"}
            assert connection.execute("select count(*) from users").fetchall() == [(4,)]
        finally:
            for role in made:
                connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
                connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def _has_role(connection: psycopg.Connection[Any], role: str) -> bool:
    return connection.execute("select 1 from pg_roles where rolname = %s", [role]).fetchone() is not None
