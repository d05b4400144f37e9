"""The end of a client: what runs finishes, what does not is for the next one, and nothing is left held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headgate.broker import BrokerClient, Event, Message
from tests.integration.broker.clients import ALL, Seen, connect, running, until


def test_what_runs_at_the_end_finishes(database: str) -> None:
    """Also what has been read ahead for it; the stand-by gets what comes after that, and at once."""

    async def story() -> None:
        began, go, first, second = asyncio.Event(), asyncio.Event(), Seen(), Seen()

        async def slow(events: Sequence[Event]) -> None:
            began.set()
            await go.wait()
            await first(events)

        async with running(BrokerClient(database, group="g", chunk=2)) as ending:
            await ending.register_reliable_handler(ALL, slow, name="h")
            await ending.publish(*[Message("t", number) for number in range(4)])
            await began.wait()
            async with running(BrokerClient(database, group="g")) as standby, await connect(database) as db:
                await standby.register_reliable_handler(ALL, second, name="h")
                end = asyncio.create_task(ending.end())
                await asyncio.sleep(0)
                await ending.end()  # it is being done
                go.set()
                await end
                handled = len(first.events)
                assert [event.payload for event in first.events] == list(range(handled))
                assert handled >= 2
                await standby.publish(Message("t", 4))
                async with asyncio.timeout(4):  # less than a lease, and than a look at what was missed
                    assert await second.wait_for(5 - handled) == list(range(handled, 5))
                await until(db, "select 1 from group_status where cursor = last_pos")
                clients = await (await db.execute("select id from clients where id like 'broker-client-%'")).fetchall()
                assert clients == [(standby.id,)]

    asyncio.run(story())


def test_what_does_not_finish_is_handled_again(database: str) -> None:
    async def story() -> None:
        began, cancelled, second = asyncio.Event(), asyncio.Event(), Seen()

        async def hang(events: Sequence[Event]) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with BrokerClient(database, group="g") as ending:
            await ending.register_reliable_handler(ALL, hang, name="h", retries_s=[0])
            await ending.publish(Message("t", 1))
            task = asyncio.create_task(ending.run())
            await began.wait()
            await ending.end(deadline_s=0.05)
            await task
            assert cancelled.is_set()
        async with running(BrokerClient(database, group="g")) as standby, await connect(database) as db:
            await standby.register_reliable_handler(ALL, second, name="h")
            async with asyncio.timeout(4):
                assert await second.wait_for(1) == [1]
            assert second.events[0].attempt == 1
            assert await (await db.execute("select count(*) from dead_letters")).fetchone() == (0,)

    asyncio.run(story())


def test_a_failure_during_the_end_is_noted(database: str) -> None:
    async def story() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def fail(events: Sequence[Event]) -> None:
            began.set()
            await go.wait()
            raise ValueError("no")

        async with running(BrokerClient(database, group="g")) as client:
            await client.register_reliable_handler(ALL, fail, name="h", retries_s=[])
            await client.publish(Message("t", 1))
            await began.wait()
            asyncio.get_running_loop().call_later(0.05, go.set)
        async with await connect(database) as db:
            assert await until(db, "select payload from dead_letters") == (1,)
            await until(db, "select 1 from group_status where cursor = last_pos and owner is null")

    asyncio.run(story())
