"""The publish buffer against the real server: batches, order, ids, what is refused, and the end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from headgate.broker import BrokerClient, Message
from headgate.model import DataError, UsageError
from tests.integration.broker.clients import connect, until


def test_what_is_enqueued_is_published_together_and_in_order(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g", flush_size=100, flush_interval_s=3600) as client:
            futures = [await client.enqueue(Message("t", number)) for number in range(250)]
            later = await client.enqueue(Message("t", "later", due_at=datetime.now(UTC) + timedelta(days=1)))
            assert (await futures[99]) is not None  # a full batch goes by itself
            await client.flush()
            ids = [future.result() for future in futures]
            assert ids == sorted(ids, key=lambda event_id: event_id or 0)
            assert later.result() is None
            left = await client.enqueue(Message("t", 250))
        assert left.result() is not None  # the end has published it
        with pytest.raises(UsageError, match="has ended"):
            await client.enqueue(Message("t", 251))
        async with await connect(database) as db:
            rows = await (await db.execute("select payload from events order by id")).fetchall()
            assert [payload for (payload,) in rows] == list(range(251))
            batches = await (await db.execute("select count(distinct xid) from events")).fetchone()
            assert batches == (4,)
            assert await (await db.execute("select payload from scheduled")).fetchone() == ("later",)

    asyncio.run(story())


def test_the_interval_publishes_too(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g", flush_interval_s=0.01) as client, asyncio.timeout(20):
            assert await (await client.enqueue(Message("t", 1)))

    asyncio.run(story())


def test_what_is_refused_concerns_nobody_else(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g", flush_interval_s=3600) as client:
            with pytest.raises(DataError, match="a message to t is not JSON"):
                await client.enqueue(Message("t", float("nan")))
            futures = [
                await client.enqueue(Message("x" * 300 if number == 3 else "t", "\0" if number == 5 else number))
                for number in range(8)
            ]
            await client.flush()
            failed = [number for number, future in enumerate(futures) if future.exception() is not None]
            assert failed == [3, 5]
            assert isinstance(futures[3].exception(), DataError)
            assert isinstance(futures[5].exception(), DataError)
        async with await connect(database) as db:
            rows = await (await db.execute("select payload from events order by id")).fetchall()
            assert [payload for (payload,) in rows] == [0, 1, 2, 4, 6, 7]

    asyncio.run(story())


def test_a_full_buffer_makes_publishers_wait(database: str) -> None:
    """Somebody holds the log: nothing can be published, and no more than the limit is taken."""

    async def story() -> None:
        client = BrokerClient(database, group="g", flush_size=5, flush_interval_s=0, buffer_limit=10)
        async with client, await connect(database) as db:
            taken = 0

            async def publish() -> None:
                nonlocal taken
                for number in range(30):
                    await client.enqueue(Message("t", number))
                    taken += 1

            async with db.transaction():
                await db.execute("lock table events in share mode")
                task = asyncio.create_task(publish())
                async with await connect(database) as other:
                    await until(other, "select 1 from pg_locks where not granted and relation = 'events'::regclass")
                for _ in range(100):
                    await asyncio.sleep(0)
                assert taken == 10
            async with asyncio.timeout(20):
                await task
                await client.flush()
            assert await (await db.execute("select count(*) from events")).fetchone() == (30,)

    asyncio.run(story())
