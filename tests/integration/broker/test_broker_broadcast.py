"""Fire and forget: whoever listens gets what comes, the slow are told what they missed, and no cursor waits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from headgate.broker import BrokerClient, Event, EventStream, LaggedError, Message, Subscription
from headgate.broker import broadcast as module
from headgate.model import DataError, UsageError
from tests.integration.broker.clients import ALL, Seen, connect, running, until

TICKS = Subscription.to_topics("tick")


async def take(stream: EventStream[Any], count: int) -> list[Any]:
    async with asyncio.timeout(20):
        return [(await anext(stream)).payload for _ in range(count)]


def test_all_who_listen_get_all(database: str) -> None:
    """Also in two clients of one group, of which one alone reads for the reliable handlers."""

    async def story() -> None:
        reliable = Seen()
        async with running(BrokerClient(database, group="g")) as one, running(BrokerClient(database, group="g")) as two:
            await one.register_reliable_handler(TICKS, reliable, name="h")
            await two.register_reliable_handler(TICKS, reliable, name="h")
            async with (
                await one.register_fire_and_forget(TICKS) as first,
                await one.register_fire_and_forget(TICKS) as second,
                await two.register_fire_and_forget(TICKS) as third,
                await one.register_fire_and_forget(ALL) as everything,
            ):
                assert first.subscription_id == second.subscription_id
                await two.publish(*[Message("tick", number) for number in range(5)], Message("tock", 5))
                for stream in (first, second, third):
                    assert await take(stream, 5) == [0, 1, 2, 3, 4]
                assert await take(everything, 6) == [0, 1, 2, 3, 4, 5]
            assert await reliable.wait_for(5) == [0, 1, 2, 3, 4]

    asyncio.run(story())


def test_who_does_not_keep_up_is_told_and_may_go_on(database: str) -> None:
    """H20b: the buffer has a bound, the group's cursor does not wait, and the newest events are there."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            reliable = Seen()
            await client.register_reliable_handler(ALL, reliable, name="h")
            async with await client.register_fire_and_forget(ALL, buffer=10) as slow:
                quick = await client.register_fire_and_forget(ALL)
                await client.publish(*[Message("t", number) for number in range(500)])
                await reliable.wait_for(500)
                assert await take(quick, 500) == list(range(500))
                await until(db, "select 1 from group_status where group_id = 'g' and cursor = last_pos")
                with pytest.raises(LaggedError, match="490") as lagged:
                    await anext(slow)
                assert lagged.value.lost == slow.lost == 490
                assert await take(slow, 10) == list(range(490, 500))
                await client.publish(Message("t", 500))
                assert await take(slow, 1) == [500]

    asyncio.run(story())


def test_who_leaves_is_forgotten(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NOTE_S", 0.0)

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            async with await client.register_fire_and_forget(TICKS) as left:
                pass
            with pytest.raises(StopAsyncIteration):
                await anext(left)
            stream = await client.register_fire_and_forget(ALL)
            await client.publish(Message("tick", 0))
            async for _ in stream:
                break
            del stream  # nobody can take from it any more
            gc.collect()
            await client.publish(Message("tick", 1))
            await until(db, "select 1 where not exists (select from subscriptions)")

    asyncio.run(story())


def test_streams_end_with_their_client(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            stream = await client.register_fire_and_forget(TICKS)
            await client.end()
            assert [event async for event in _all_of(stream)] == []
            assert await (await db.execute("select count(*) from subscriptions")).fetchone() == (0,)
            with pytest.raises(UsageError, match="has ended"):
                await client.register_fire_and_forget(TICKS)

    asyncio.run(story())


async def _all_of(stream: EventStream[Any]) -> AsyncIterator[Event]:
    async with asyncio.timeout(20):
        async for event in stream:
            yield event


def test_payloads_of_a_type(database: str) -> None:
    class Tick(msgspec.Struct):
        price: float

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client:
            with pytest.raises(UsageError):
                await client.register_fire_and_forget(TICKS, buffer=0)
            async with await client.register_fire_and_forget(TICKS, payload_type=Tick) as ticks:
                await client.publish(Message("tick", {"price": "high"}), Message("tick", Tick(1.5)))
                with pytest.raises(DataError, match=r"event \d+: the payload does not fit Tick: .*price"):
                    await anext(ticks)
                assert (await anext(ticks)).payload == Tick(1.5)

    asyncio.run(story())


def test_a_client_that_was_taken_for_dead_listens_again(database: str) -> None:
    """Its subscriptions have expired: they are asserted again, and have their ids."""

    async def story() -> None:
        seen = Seen()

        async def ignore(events: Sequence[Event]) -> None:
            await seen(events)

        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            stream = await client.register_fire_and_forget(TICKS)
            await client.register_reliable_handler(ALL, ignore, name="h")
            await db.execute("select maintain(now() + interval '2 minutes')")
            await until(db, "select 1 from subscriptions where expired_at is not null")
            await client._subscribe_again()
            task = asyncio.create_task(client.run())
            await client.publish(Message("tick", 1))
            assert await take(stream, 1) == [1]
            client.stop()
            await task

    asyncio.run(story())
