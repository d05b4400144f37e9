"""What a client promises, of the broker in PostgreSQL and of the one in memory that programs are tested with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from headgate.broker import BrokerClient, Event, InMemoryBroker, Limits, Message, Subscription
from headgate.broker.memory import InMemoryClient
from headgate.model import DataError, UsageError
from tests.integration.broker.clients import eventually

TOPIC = Subscription.to_topics("t")


class World:
    """Clients of one kind, and a way to let some time pass."""

    def client(self, group: str = "g") -> Any:
        raise NotImplementedError

    async def settle(self, done: Callable[[], bool]) -> None:
        """Until it is so."""
        raise NotImplementedError

    def dead_letters(self) -> list[tuple[str, str, Any, int, str]]:
        """Group, handler, payload, attempts and error."""
        raise NotImplementedError


class InMemory(World):
    def __init__(self) -> None:
        self._broker = InMemoryBroker()

    @asynccontextmanager
    async def client(self, group: str = "g") -> AsyncIterator[InMemoryClient]:
        async with self._broker.client(group) as client:
            yield client

    async def settle(self, done: Callable[[], bool]) -> None:
        for _ in range(100):
            await self._broker.drain()
            if done():
                return
            self._broker.advance(seconds=0.1)
        raise AssertionError("it never came to that")

    def dead_letters(self) -> list[tuple[str, str, Any, int, str]]:
        return [
            (each.group, each.handler, each.event.payload, each.attempts, each.error)
            for each in self._broker.dead_letters
        ]


@dataclass
class InPostgres(World):
    url: str

    @asynccontextmanager
    async def client(self, group: str = "g") -> AsyncIterator[BrokerClient]:
        async with BrokerClient(self.url, group=group) as client:
            task = asyncio.create_task(client.run())
            try:
                yield client
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def settle(self, done: Callable[[], bool]) -> None:
        await eventually(done)

    def dead_letters(self) -> list[tuple[str, str, Any, int, str]]:
        with psycopg.connect(self.url) as connection:
            query = "select group_id, handler, payload, attempts, error from headgate.dead_letters order by id"
            return connection.execute(query).fetchall()


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    return InMemory() if request.param == "memory" else InPostgres(request.getfixturevalue("database"))


Story = Callable[[World], Coroutine[Any, Any, None]]


def told(story: Story) -> Callable[[World], None]:
    """A story, in an event loop of its own."""

    def test(world: World) -> None:
        asyncio.run(story(world))

    test.__name__ = story.__name__
    test.__doc__ = story.__doc__
    return test


class Seen:
    def __init__(self, fails: Callable[[Event], bool] = lambda event: False) -> None:
        self.got: list[tuple[Any, int]] = []
        self._fails = fails

    async def __call__(self, events: Sequence[Event]) -> None:
        self.got += [(event.payload, event.attempt) for event in events]
        if any(self._fails(event) for event in events):
            raise ValueError("no")

    @property
    def payloads(self) -> list[Any]:
        return [payload for payload, _ in self.got]


@told
async def test_events_come_in_order_to_who_subscribed(world: World) -> None:
    seen, other = Seen(), Seen()
    async with world.client() as client, world.client("other") as second:
        await client.register_reliable_handler(TOPIC, seen, name="h")
        await second.register_reliable_handler(Subscription(), other, name="h")
        ids = await client.publish(*(Message("t", number) for number in range(100)), Message("x", "else"))
        assert ids == sorted(set(ids))
        await world.settle(lambda: len(seen.got) >= 100 and len(other.got) >= 101)
    assert seen.payloads == list(range(100))
    assert other.payloads == [*range(100), "else"]


@told
async def test_patterns_of_topics(world: World) -> None:
    seen, topics = Seen(), ["order.paid", "order", "order.a.b", "x.eu", "x.eu.a", "order.eu.a.b", "plain", "plain.a"]
    async with world.client() as client:
        wanted = Subscription.to_patterns("order.*", "*.eu.>", "plain", "x.*.a")
        await client.register_reliable_handler(wanted, seen, name="h")
        await client.publish(*(Message(topic, topic) for topic in topics), Message("order.", "end"))
        await world.settle(lambda: "end" in seen.payloads)
    assert seen.payloads == ["order.paid", "x.eu.a", "order.eu.a.b", "plain", "end"]


@told
async def test_only_the_event_that_fails_comes_again_and_then_is_a_dead_letter(world: World) -> None:
    seen, other = Seen(lambda event: event.payload == 3), Seen()
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, seen, name="flaky", retries_s=[0.05, 0.05])
        await client.register_reliable_handler(TOPIC, other, name="steady")
        await client.publish(*(Message("t", number) for number in range(6)))
        await world.settle(lambda: len(world.dead_letters()) == 1 and len(other.got) >= 6)
    assert world.dead_letters() == [("g", "flaky", 3, 3, "ValueError: no")]
    assert other.got == [(number, 1) for number in range(6)]
    alone = [attempt for payload, attempt in seen.got if payload == 3]
    assert alone[-2:] == [2, 3]
    assert {attempt for payload, attempt in seen.got if payload != 3} == {1}


@told
async def test_what_is_due_later_comes_later(world: World) -> None:
    seen = Seen()
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, seen, name="h")
        soon = datetime.now(UTC) + timedelta(seconds=1)
        assert await client.publish(Message("t", "later", due_at=soon), Message("t", "now")) != []
        await world.settle(lambda: len(seen.got) >= 2)
    assert seen.payloads == ["now", "later"]


@told
async def test_an_event_for_one_subscription_alone(world: World) -> None:
    mine, others = Seen(), Seen()
    async with world.client() as client, world.client("other") as second:
        one = await client.register_reliable_handler(TOPIC, mine, name="h")
        await second.register_reliable_handler(Subscription(), others, name="h")
        await client.send(one.subscription_id, Message("anything", 1))
        await client.publish(Message("t", 2))
        await world.settle(lambda: len(mine.got) >= 2 and len(others.got) >= 1)
    assert (mine.payloads, others.payloads) == ([1, 2], [2])


@told
async def test_batches_are_as_large_as_was_said(world: World) -> None:
    sizes: list[int] = []

    async def handle(events: Sequence[Event]) -> None:
        sizes.append(len(events))

    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, handle, name="h", batch_size=4)
        await client.publish(*(Message("t", number) for number in range(10)))
        await world.settle(lambda: sum(sizes) >= 10)
    assert max(sizes) == 4


@told
async def test_payloads_of_a_type(world: World) -> None:
    got: list[User] = []

    async def handle(events: Sequence[Event[User]]) -> None:
        got.extend(event.payload for event in events)

    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, handle, name="h", payload_type=User)
        await client.publish(Message("t", User("ann")), Message("t", {"nobody": 1}), Message("t", {"name": "bob"}))
        await world.settle(lambda: len(got) >= 2 and len(world.dead_letters()) == 1)
        with pytest.raises(DataError):
            await client.publish(Message("t", object()))
    assert got == [User("ann"), User("bob")]


@dataclass
class User:
    name: str


@told
async def test_what_waits_for_a_handler_is_not_passed_over(world: World) -> None:
    first, second = Seen(), Seen()
    async with world.client() as client:
        registered = await client.register_reliable_handler(TOPIC, first, name="h")
        await client.publish(Message("t", 1))
        await world.settle(lambda: first.payloads == [1])
        await registered.cancel()
        await client.publish(Message("t", 2), Message("t", 3))
        await client.register_reliable_handler(TOPIC, second, name="h")
        await world.settle(lambda: len(second.got) >= 2)
    assert (first.payloads, second.payloads) == ([1], [2, 3])


@told
async def test_two_handlers_of_one_name_are_a_mistake(world: World) -> None:
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, Seen(), name="h")
        with pytest.raises(UsageError):
            await client.register_reliable_handler(TOPIC, Seen(), name="h")


@told
async def test_who_listens_gets_what_comes_from_now_on(world: World) -> None:
    async with world.client() as client:
        stream = await client.register_fire_and_forget(TOPIC)
        got: list[Any] = []

        async def listen() -> None:
            async for event in stream:
                got.append(event.payload)  # noqa: PERF401  others look at it meanwhile

        listening = asyncio.create_task(listen())
        await client.publish(Message("t", 1), Message("x", 2), Message("t", 3))
        async with asyncio.timeout(20):
            while len(got) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        listening.cancel()
    assert got == [1, 3]


@told
async def test_enqueued_is_published(world: World) -> None:
    seen = Seen()
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, seen, name="h")
        futures = [await client.enqueue(Message("t", number)) for number in range(5)]
        await client.flush()
        assert all([await each for each in futures])
        await world.settle(lambda: len(seen.got) >= 5)
    assert seen.payloads == list(range(5))


@told
async def test_calls_side_by_side_keep_the_order_of_a_key(world: World) -> None:
    got: dict[str, list[int]] = {}
    most, running = 0, 0

    async def handle(events: Sequence[Event]) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        for event in events:
            got.setdefault(event.payload["key"], []).append(event.payload["n"])
        running -= 1

    limits = Limits(parallel=3, key=lambda event: event.payload["key"])
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, handle, name="h", batch_size=2, limits=limits)
        await client.publish(*(Message("t", {"key": f"k{n % 7}", "n": n}) for n in range(140)))
        await world.settle(lambda: sum(map(len, got.values())) >= 140)
    assert got == {f"k{key}": list(range(key, 140, 7)) for key in range(7)}
    assert most == 3


@told
async def test_one_lane_that_fails_does_not_hold_the_others(world: World) -> None:
    seen = Seen(lambda event: event.payload == 3)
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, seen, name="h", retries_s=[], limits=Limits(parallel=4))
        await client.publish(*(Message("t", n) for n in range(10)))
        await world.settle(lambda: len(world.dead_letters()) == 1 and set(seen.payloads) == set(range(10)))
    assert world.dead_letters() == [("g", "h", 3, 1, "ValueError: no")]


@told
async def test_a_handler_is_not_called_faster_than_its_rate(world: World) -> None:
    at: list[float] = []

    async def handle(events: Sequence[Event]) -> None:
        at.extend([asyncio.get_running_loop().time()] * len(events))

    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, handle, name="h", limits=Limits(rate_per_s=20))
        await client.publish(*(Message("t", n) for n in range(50)))
        await world.settle(lambda: len(at) >= 50)
    # A second's worth at once, and then as many in each second.
    assert at[49] - at[0] >= 1.9


@told
async def test_an_event_without_a_key_is_handled_alone(world: World) -> None:
    """One bad event does not end the handler."""
    seen = Seen()
    limits = Limits(parallel=2, key=lambda event: event.payload["key"])
    async with world.client() as client:
        await client.register_reliable_handler(TOPIC, seen, name="h", limits=limits)
        await client.publish(
            Message("t", {"key": 1}), Message("t", {}), Message("t", {"key": [1]}), Message("t", {"key": 2})
        )
        await world.settle(lambda: len(seen.got) >= 4)
    assert sorted(map(str, seen.payloads)) == ["{'key': 1}", "{'key': 2}", "{'key': [1]}", "{}"]


def test_limits_that_let_nothing_through() -> None:
    for wrong in ({"parallel": 0}, {"rate_per_s": 0}, {"rate_per_s": float("nan")}, {"key": lambda event: 1}):
        with pytest.raises(UsageError):
            Limits(**wrong)


def test_conditions_in_sql_need_a_function() -> None:
    async def story() -> None:
        condition = "e.payload ->> 'kind' = s.params ->> 'kind'"
        with pytest.raises(UsageError, match="matches="):
            await InMemoryBroker().client("g").subscribe(Subscription(condition))
        broker = InMemoryBroker({condition: lambda event, params: event.payload["kind"] == params["kind"]})
        client, seen = broker.client("g"), Seen()
        await client.register_reliable_handler(Subscription(condition, {"kind": "a"}), seen, name="h")
        await client.publish(Message("t", {"kind": "a"}), Message("t", {"kind": "b"}))
        await broker.drain()
        assert seen.payloads == [{"kind": "a"}]

    asyncio.run(story())


def test_a_running_client_handles_what_comes() -> None:
    async def story() -> None:
        client, seen = InMemoryBroker().client("g"), Seen()
        await client.register_reliable_handler(TOPIC, seen, name="h")
        running = asyncio.create_task(client.run())
        await client.publish(Message("t", 1))
        await eventually(lambda: seen.payloads == [1])
        client.stop()
        await asyncio.wait_for(running, 10)

    asyncio.run(story())
