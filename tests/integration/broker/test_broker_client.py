"""The client: events handled at least once, failures that concern one handler, and groups that change hands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from headgate.broker import BrokerClient, Event, Message, Subscription, publish
from headgate.model import ConnectError, StateError, UsageError
from tests.integration.broker.clients import ALL, Seen, connect, running, until


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
            await client.register_reliable_handler(ALL, hang, name="hangs", timeout_s=0.05, retries_s=[])
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
            await until(db, "select 1 from group_status where epoch > 0")  # it has read, and handled nothing
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


def test_handlers_come_and_go(database: str) -> None:
    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            first, second, other = Seen(), Seen(), Seen()
            registration = await client.register_reliable_handler(ALL, first, name="h")
            await client.register_reliable_handler(Subscription.to_topics("other"), other, name="other")
            await client.publish(Message("t", 1))
            await first.wait_for(1)
            await registration.cancel()
            await registration.cancel()  # there is nothing left to do
            await client.publish(Message("t", 2), Message("other", 3))
            await until(db, "select 1 from group_status where last_pos >= 3")
            # It is waited for, by those behind it, too: a subscription that nobody serves must not lose anything.
            again = await client.register_reliable_handler(ALL, second, name="h")
            assert again.subscription_id == registration.subscription_id
            assert again.name == "h"
            assert await second.wait_for(2) == [2, 3]
            assert await other.wait_for(1) == [3]
            await again.cancel(unsubscribe=True)
            await client.publish(Message("t", 4), Message("other", 5))
            assert await other.wait_for(2) == [3, 5]
            assert [event.payload for event in first.events + second.events] == [1, 2, 3]

    asyncio.run(story())


def test_a_handler_may_cancel_itself_and_stop_the_client(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g") as client:
            seen = Seen()

            async def once(events: Sequence[Event]) -> None:
                await registration.cancel()
                await seen(events)
                client.stop()

            registration = await client.register_reliable_handler(ALL, once, name="once", batch_size=1)
            await client.publish(Message("t", 1))
            async with asyncio.timeout(20):
                await client.run()
            assert [event.payload for event in seen.events] == [1]

    asyncio.run(story())


def test_a_handler_gets_batches_of_the_size_it_wants(database: str) -> None:
    """Of the batches of one read, one fails: its events are tried one by one, and the one that fails comes again."""

    async def story() -> None:
        calls: list[list[int]] = []

        async def handle(events: Sequence[Event]) -> None:
            calls.append([event.payload for event in events])
            if 2 in calls[-1] and events[0].attempt == 1:
                raise ValueError("not yet")
            if events[0].attempt == 2:
                client.stop()

        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, handle, name="h", batch_size=2, retries_s=[0])
            await client.publish(*[Message("t", number) for number in range(7)])
            async with asyncio.timeout(20):
                await client.run()
        assert calls == [[0, 1], [2, 3], [2], [3], [4, 5], [6], [2]]
        async with await connect(database) as db:
            await until(db, "select 1 from group_status where cursor = last_pos")
            assert await (await db.execute("select count(*) from dead_letters")).fetchone() == (0,)

    asyncio.run(story())


def test_a_slow_handler_bounds_what_is_read_and_holds_nobody_up(database: str) -> None:
    """Ten reads ahead of it and no more; another subscription goes on until then, and all is handled in the end."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g", chunk=1)) as client, await connect(database) as db:
            go, slow, quick = asyncio.Event(), Seen(), Seen()

            async def wait(events: Sequence[Event]) -> None:
                await go.wait()
                await slow(events)

            await client.register_reliable_handler(Subscription.to_topics("t"), wait, name="slow")
            await client.register_reliable_handler(ALL, quick, name="quick")
            await client.publish(*[Message("t", number) for number in range(30)])
            assert await quick.wait_for(10) == list(range(10))
            await until(db, "select 1 from group_status where last_pos = 30")
            await client.publish(Message("u", 30))
            await until(db, "select 1 from group_status where last_pos = 31")
            assert len(quick.events) == 10
            go.set()
            assert await slow.wait_for(30) == list(range(30))
            assert await quick.wait_for(31) == list(range(31))

    asyncio.run(story())


def test_a_group_that_is_set_back_is_handled_again(database: str) -> None:
    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            seen = Seen()
            await client.register_reliable_handler(ALL, seen, name="h")
            await client.publish(Message("t", 1))
            await seen.wait_for(1)
            await until(db, "select 1 from group_status where cursor = last_pos")
            await db.execute("select seek('g', 0)")
            await client.publish(Message("t", 2))
            assert await seen.wait_for(3) == [1, 1, 2]

    asyncio.run(story())


def test_a_retry_of_a_handler_that_is_gone_is_a_dead_letter(database: str) -> None:
    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            seen = Seen()
            sid = (await client.register_reliable_handler(ALL, seen, name="new")).subscription_id
            (event_id,) = await client.publish(Message("t", 1))
            await seen.wait_for(1)
            await db.execute("select retry_v1(%s, 'old', array[%s]::bigint[], 2, 'x', '0')", [sid, event_id])
            row = await until(db, "select handler, attempts, payload from dead_letters")
            assert row == ("old", 2, 1)
            assert len(seen.events) == 1

    asyncio.run(story())


@pytest.mark.parametrize("text", ["a zero \0 byte", "half a \ud800 pair", "x" * 100_000], ids=["zero", "half", "long"])
def test_no_error_text_stops_a_handler(database: str, text: str) -> None:
    async def fail(events: Sequence[Event]) -> None:
        if events[0].payload == "cancelled":
            raise asyncio.CancelledError
        raise ValueError(text)

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, fail, name="h", batch_size=1, retries_s=[])
            await client.publish(Message("t", "cancelled"), Message("t", "raised"))
            await until(db, "select 1 from dead_letters having count(*) = 2")

    asyncio.run(story())


def test_what_cannot_be_opened(database: str) -> None:
    async def story() -> None:
        with pytest.raises(StateError, match="no broker in the schema elsewhere"):
            await BrokerClient(database, group="g", schema="elsewhere").__aenter__()
        async with running(BrokerClient(database, group="g")) as client:
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="runs already"):
                await client.run()
            with pytest.raises(UsageError, match="at least one"):
                await client.register_reliable_handler(ALL, Seen(), name="h", batch_size=0)

    asyncio.run(story())


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.database.OPEN_S", 0.2)

    async def story() -> None:
        with pytest.raises(ConnectError):
            await BrokerClient("postgresql://127.0.0.1:1/none", group="g").__aenter__()

    asyncio.run(story())
