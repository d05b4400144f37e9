"""What becomes of the others when one event of a batch fails, and who may note a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from headgate.broker import BrokerClient, Event, Message
from headgate.broker.handlers import RETRIES_S
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until

Session = psycopg.AsyncConnection[Any]


async def fetch(db: Session, statement: str, *values: Any) -> list[Any]:
    return await (await db.execute(statement.encode(), values)).fetchall()


def test_one_failing_event_takes_nobody_with_it(database: str) -> None:
    """With defaults: a thousand events in one call, of which the third raises."""

    async def story() -> None:
        handled: list[tuple[int, int]] = []
        bad = Seen()

        async def handle(events: Sequence[Event[int]]) -> None:
            for event in events:
                if event.payload == 3:
                    await bad([event])
                    raise ValueError("the third")
                handled.append((event.payload, event.attempt))

        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, handle, name="h")
            await client.publish(*[Message("t", number) for number in range(1, 1001)])
            running_client = asyncio.create_task(client.run())
            await until(db, "select 1 from group_status where cursor >= 1000")
            # The first two come twice, because their call failed; all are there, in order, and at the first attempt.
            assert handled == [(number, 1) for number in (1, 2, 1, 2, *range(4, 1001))]
            assert await fetch(db, "select count(*) from dead_letters") == [(0,)]
            await bad.wait_for(3)  # in the call of all, alone, and after the first of the default delays
            assert bad.events[2].attempt == 2
            client.stop()
            await running_client

    asyncio.run(story())


def test_there_are_retries_unless_somebody_wants_none() -> None:
    assert len(RETRIES_S) >= 3
    assert list(RETRIES_S) == sorted(set(RETRIES_S))


@pytest.mark.parametrize("retries", [[], [60.0]], ids=["buried", "retried"])
def test_who_has_lost_the_group_notes_no_failure(database: str, retries: list[float]) -> None:
    """Whoever has it now handles the event and notes what comes of it: once, not twice."""

    async def story() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def fail(events: Sequence[Event[Any]]) -> None:
            began.set()
            await go.wait()
            raise ValueError("too late")

        seen = Seen()
        async with running(BrokerClient(database, group="g")) as old, await connect(database) as db:
            await old.register_reliable_handler(ALL, fail, name="h", retries_s=retries)
            await old.publish(Message("t", 1))
            await began.wait()
            tenure = old._readers["g"]._tenure
            async with running(BrokerClient(database, group="g")) as new:
                await new.register_reliable_handler(ALL, seen, name="h")
                async with db.transaction():
                    await db.execute("select release_group_v1('g', %s)", [old.id])
                    await db.execute("select hold_group_v1('g', %s)", [new.id])
                    await db.execute("select pg_notify('headgate_events', '')")
                await seen.wait_for(1)
                await until(db, "select 1 from group_status where behind = 0")
                go.set()
                await eventually(lambda: tenure.over)
                assert await fetch(db, "select count(*) from dead_letters") == [(0,)]
                assert await fetch(db, "select count(*) from scheduled") == [(0,)]

    asyncio.run(story())


def test_a_batch_that_is_lost_is_not_handled_on(database: str) -> None:
    """Between two calls of a batch, the group goes to another: the rest is that one's."""

    async def story() -> None:
        began, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        mine: list[int] = []

        async def handle(events: Sequence[Event[int]]) -> None:
            mine.extend(event.payload for event in events)
            began.set()
            await go.wait()
            ended.set()
            raise ValueError("settled, so that the loss is seen")

        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, handle, name="h", batch_size=1)
            await client.publish(*[Message("t", number) for number in range(5)])
            await began.wait()
            tenure = client._readers["g"]._tenure
            async with db.transaction():
                await db.execute("select release_group_v1('g', %s)", [client.id])
                await db.execute("select hold_group_v1('g', 'another')")
            go.set()
            await ended.wait()
            await eventually(lambda: tenure.over)
            await until(db, "select 1 from group_status where owner = 'another' and behind = 5")
            assert mine == [0]

    asyncio.run(story())
