"""Programs of two versions in one group: who cannot serve an event leaves it to one that can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from headgate.broker import BrokerClient, Event, Message, Subscription, reading
from headgate.cli.app import app
from tests.integration.broker.clients import ALL, Seen, connect, running, until

A, B = Subscription.to_topics("a"), Subscription.to_topics("b")


async def hand_to(db: psycopg.AsyncConnection[Any], client: BrokerClient, other: BrokerClient) -> None:
    """As if the other one had been quicker."""
    async with db.transaction():
        await db.execute("select release_group_v1('g', %s)", [other.id])
        await db.execute("select hold_group_v1('g', %s)", [client.id])


def test_an_old_program_hands_over_to_one_that_has_the_new_handler(database: str) -> None:
    async def story() -> None:
        a, b = Seen(), Seen()
        async with running(BrokerClient(database, group="g")) as old, await connect(database) as db:
            await old.register_reliable_handler(A, a, name="a")
            await old.publish(Message("a", 1))
            await a.wait_for(1)
            async with running(BrokerClient(database, group="g")) as new:
                await new.register_reliable_handler(A, a, name="a")
                await new.register_reliable_handler(B, b, name="b")
                await hand_to(db, old, new)
                await new.publish(Message("a", 2), Message("b", 3), Message("a", 4))
                assert await a.wait_for(3) == [1, 2, 4]
                assert await b.wait_for(1) == [3]

    asyncio.run(story())


def test_two_programs_with_different_handlers_share_a_group(database: str) -> None:
    async def story() -> None:
        a, b = Seen(), Seen()
        async with running(BrokerClient(database, group="g")) as one, running(BrokerClient(database, group="g")) as two:
            await one.register_reliable_handler(A, a, name="a")
            await two.register_reliable_handler(B, b, name="b")
            for number in range(4):
                await one.publish(Message("a", number), Message("b", number))
            assert await a.wait_for(4) == await b.wait_for(4) == [0, 1, 2, 3]

    asyncio.run(story())


def test_a_retry_goes_to_the_program_that_has_its_handler(database: str) -> None:
    """The reader has a handler of the subscription, but not the one that failed."""

    async def story() -> None:
        first, second = Seen(), Seen(lambda event: event.attempt == 1)
        async with running(BrokerClient(database, group="g")) as new, await connect(database) as db:
            await new.register_reliable_handler(ALL, first, name="first")
            await new.register_reliable_handler(ALL, second, name="second", retries_s=[1])
            async with running(BrokerClient(database, group="g")) as old:
                await old.register_reliable_handler(ALL, first, name="first")
                await new.publish(Message("t", 1))
                await until(db, "select 1 from scheduled")
                await hand_to(db, old, new)
                await second.wait_for(2)
                assert [event.attempt for event in second.events] == [1, 2]
                assert await (await db.execute("select count(*) from dead_letters")).fetchone() == (0,)

    asyncio.run(story())


def test_a_group_without_its_handler_is_told_again_and_again(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "TELL_S", 0.2)

    async def story() -> None:
        a = Seen()
        caplog.set_level(logging.WARNING, "headgate.broker.reading")
        async with running(BrokerClient(database, group="g")) as client:
            await client.register_reliable_handler(A, a, name="a")
            gone = await client.subscribe(B)
            await client.publish(Message("b", 1), Message("a", 2))
            async with asyncio.timeout(20):
                while len(caplog.messages) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert all(f"headgate broker unsubscribe {gone}" in message for message in caplog.messages)
            assert not a.events
            await asyncio.to_thread(_unsubscribe, database, gone)
            assert await a.wait_for(1) == [2]

    asyncio.run(story())


def _unsubscribe(database: str, subscription_id: int) -> None:
    command = ["broker", "unsubscribe", str(subscription_id), "--yes", "--postgres", database]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output


def test_nobody_unsubscribes_what_is_not_there(database: str) -> None:
    result = CliRunner().invoke(app, ["broker", "unsubscribe", "999", "--yes", "--postgres", database])
    assert result.exit_code != 0


def test_a_handler_may_go_while_the_reader_waits_for_the_server(database: str) -> None:
    """What was read for it is handled, or waits for the next one: the group does not wait for a handler that ended."""

    async def story() -> None:
        kept = Seen()

        async def never(events: Sequence[Event[Any]]) -> None:
            raise AssertionError("it was cancelled before")

        slow = await psycopg.AsyncConnection.connect(database)  # in a transaction, whose lock delays the reader
        async with slow, running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(A, kept, name="kept")
            going = await client.register_reliable_handler(B, never, name="going")
            await slow.execute("lock table headgate.dead_letters in access exclusive mode")
            await db.execute("begin")  # so that all of it is in one read
            await db.execute("""select publish('b', '1')""")
            # A retry of a handler that is gone: it is buried, and that takes as long as the lock is held.
            await db.execute(
                "insert into events (subscription_id, topic, payload, retry) values (%s, 'a', '1', %s)",
                [client._readers["g"].handlers[0].subscription_id, '{"of": 1, "handler": "gone", "attempt": 2}'],
            )
            await db.execute("""select publish('a', '2')""")
            await db.execute("commit")
            await until(db, "select 1 from pg_stat_activity where query ~ 'bury_v' and wait_event_type = 'Lock'")
            cancelling = asyncio.create_task(going.cancel(unsubscribe=True))
            await asyncio.sleep(0)
            await slow.rollback()
            async with asyncio.timeout(20):
                await cancelling
            assert await kept.wait_for(1) == [2]
            await until(db, "select 1 from group_status where behind = 0")

    asyncio.run(story())
