"""The client: events handled at least once, failures that concern one handler, and groups that change hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from headgate.broker import BrokerClient, Event, Message, Subscription, publish
from headgate.model import UsageError

ALL = Subscription("e.topic is not null")


@asynccontextmanager
async def running(client: BrokerClient) -> AsyncIterator[BrokerClient]:
    async with client:
        task = asyncio.create_task(client.run())
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Seen:
    """A handler that keeps what it gets, fails as told, and can be awaited."""

    def __init__(self, fails: Callable[[Event], bool] = lambda event: False) -> None:
        self.events: list[Event] = []
        self._fails = fails
        self._changed = asyncio.Condition()

    async def __call__(self, events: Sequence[Event]) -> None:
        async with self._changed:
            self.events += events
            self._changed.notify_all()
        if any(self._fails(event) for event in events):
            raise ValueError("it does not like that")

    async def wait_for(self, count: int) -> list[Any]:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return [event.payload for event in self.events]


async def until(db: psycopg.AsyncConnection[Any], query: str) -> tuple[Any, ...]:
    """The first row of a query that has one."""
    async with asyncio.timeout(20):
        while not (row := await (await db.execute(query.encode())).fetchone()):
            await db.execute("select pg_sleep(0.01)")
    return tuple(row)


async def connect(database: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(database, autocommit=True, options="-c search_path=headgate")


def test_what_a_transaction_publishes_is_handled(database: str) -> None:
    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            seen, topical = Seen(), Seen()
            await client.register_reliable_handler(ALL, seen, name="all")
            await client.register_reliable_handler(Subscription.to_topics("b", "c"), topical, name="topical")
            with pytest.raises(UsageError):
                await client.register_reliable_handler(ALL, seen, name="all")
            async with db.transaction():
                await publish(db, Message("a", 1), Message("b", 2), Message("later", 4, due_at=datetime.now(UTC)))
            async with db.transaction(force_rollback=True):
                await publish(db, Message("a", "never"))
            assert len(await client.publish(Message("c", 3, {"trace": 1}))) == 1
            assert sorted(await seen.wait_for(4)) == [1, 2, 3, 4]
            assert await topical.wait_for(2) == [2, 3]
            assert topical.events[1].metadata == {"trace": 1}
            await until(db, "select 1 from group_status where cursor = last_pos")

    asyncio.run(story())


def test_a_failure_is_for_one_handler_and_ends_in_the_dead_letters(database: str) -> None:
    """H17: a retry at once, then no more; the other handler is not called again."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            bad, good = Seen(lambda event: event.payload == 1), Seen()
            await client.register_reliable_handler(ALL, bad, name="bad", retries_s=[0])
            await client.register_reliable_handler(ALL, good, name="good")
            await client.publish(Message("t", 1))
            row = await until(db, "select handler, attempts, error, payload from dead_letters")
            assert row == ("bad", 2, "ValueError: it does not like that", 1)
            await client.publish(Message("t", 2))
            assert await good.wait_for(2) == [1, 2]
            assert await bad.wait_for(3) == [1, 1, 2]
            assert [event.attempt for event in bad.events] == [1, 2, 1]

    asyncio.run(story())


def test_a_handler_that_hangs_has_a_timeout(database: str) -> None:
    async def hang(events: Sequence[Event]) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, hang, name="hangs", timeout_s=0.05)
            await client.publish(Message("t", 1))
            assert await until(db, "select error from dead_letters") == ("TimeoutError: ",)

    asyncio.run(story())


def test_a_handler_that_comes_late_gets_all(database: str) -> None:
    """H8: what was waiting when the client began to read."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g", chunk=3)) as client, await connect(database) as db:
            await client.subscribe(ALL)
            await client.register_reliable_handler(Subscription.to_topics("other"), Seen(), name="other")
            await client.publish(*[Message("t", number) for number in range(20)])
            await until(db, "select 1 from group_status where last_pos >= 20")
            await until(db, "select 1 from group_status where owner is not null")  # it has read, and handled nothing
            seen = Seen()
            await client.register_reliable_handler(ALL, seen, name="late")
            assert await seen.wait_for(20) == list(range(20))

    asyncio.run(story())


def test_another_client_takes_over(database: str) -> None:
    """H7e: it reads ahead of a slow handler, ends in good order, and the next one gets the next event."""

    async def story() -> None:
        first, second = Seen(), Seen()
        async with running(BrokerClient(database, group="g", chunk=1)) as client:
            await client.register_reliable_handler(ALL, first, name="h")
            await client.publish(*[Message("t", number) for number in range(4)])
            await first.wait_for(4)
            async with await connect(database) as db:
                await until(db, "select 1 from group_status where cursor = last_pos")
        async with running(BrokerClient(database, group="g")) as client:
            await client.register_reliable_handler(ALL, second, name="h")
            await client.publish(Message("t", 4))
            assert await second.wait_for(1) == [4]

    asyncio.run(story())
