"""One group that several programs read side by side, in slots: each has its share, and every key keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.broker import BrokerClient, Event, Limits, Message, Slots, Subscription, slots
from headgate.broker.slots import shares
from headgate.model import StateError, UsageError
from tests.integration.broker.clients import Seen, connect, eventually, running, until

FOUR = Slots(4, "order.customer")
TOPIC = Subscription.to_topics("t")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there is looked at more often than it need be."""
    monkeypatch.setattr(slots, "SHARE_S", 0.2)


class Handled:
    """What was handled, in order, and by whom."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any, int]] = []
        self.running: dict[Any, int] = {}
        self.together = False

    def by(self, name: str) -> Any:
        async def handle(events: Sequence[Event]) -> None:
            for event in events:
                key, number = event.payload["order"]["customer"], event.payload["n"]
                self.together = self.together or self.running.get(key, 0) > 0
                self.running[key] = self.running.get(key, 0) + 1
                await asyncio.sleep(0.001)
                self.running[key] -= 1
                self.got.append((name, key, number))

        return handle

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.got}

    def first_seen(self) -> dict[Any, list[int]]:
        """Of each key, the numbers in the order in which they were handled for the first time."""
        found: dict[Any, list[int]] = {}
        for _, key, number in self.got:
            if number not in found.setdefault(key, []):
                found[key].append(number)
        return found


def messages(first: int, count: int) -> list[Message]:
    return [Message("t", {"order": {"customer": f"c{n % 16}"}, "n": n}) for n in range(first, first + count)]


def in_order(count: int) -> dict[str, list[int]]:
    return {f"c{key}": list(range(key, count, 16)) for key in range(16)}


async def held(db: psycopg.AsyncConnection[Any], client: BrokerClient) -> int:
    query = "select count(*) from subscription_groups where owner = %s and lease_until > now()"
    row = await (await db.execute(query, [client.id])).fetchone()
    assert row is not None
    return int(row[0])


async def until_held(db: psycopg.AsyncConnection[Any], shared: dict[BrokerClient, int]) -> None:
    async with asyncio.timeout(60):
        while {client: await held(db, client) for client in shared} != shared:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_programs_come_and_go_and_every_key_keeps_its_order(database: str) -> None:
    async def story() -> None:
        handled = Handled()

        async def program(name: str) -> BrokerClient:
            client = await BrokerClient(database, group="g", slots=FOUR, chunk=20).__aenter__()
            await client.register_reliable_handler(TOPIC, handled.by(name), name="h")
            return client

        async with await connect(database) as db:
            one = await program("one")
            ran = [asyncio.create_task(one.run())]
            await one.publish(*messages(0, 200))
            await until_held(db, {one: 4})
            two = await program("two")
            ran.append(asyncio.create_task(two.run()))
            await one.publish(*messages(200, 200))
            await until_held(db, {one: 2, two: 2})
            await one.publish(*messages(400, 200))
            await eventually(lambda: len({number for _, _, number in handled.got}) == 600)
            assert handled.names == {"one", "two"}
            await one.publish(*messages(600, 200))
            await two.end()  # in the middle of it
            await eventually(lambda: len({number for _, _, number in handled.got}) == 800)
            await until_held(db, {one: 4})
            await one.end()
            await asyncio.gather(*ran, return_exceptions=True)
        assert handled.first_seen() == in_order(800)
        assert not handled.together

    asyncio.run(story())


def test_the_share_of_a_program_that_dies_is_taken(database: str, db: psycopg.Connection[Any]) -> None:
    """It is killed with events in hand: they come again, after those before them."""

    async def story() -> None:
        handled, stuck = Handled(), asyncio.Event()

        async def hang(events: Sequence[Event]) -> None:
            stuck.set()
            await asyncio.Event().wait()

        async with await connect(database) as watching:
            dead = await BrokerClient(database, group="g", slots=FOUR).__aenter__()
            await dead.register_reliable_handler(TOPIC, hang, name="h")
            task = asyncio.create_task(dead.run())
            await until_held(watching, {dead: 4})
            await dead.publish(*messages(0, 64))
            await stuck.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # As after a kill: nothing is released, and nobody says that it lives.
            await watching.execute("update clients set last_active_at = now() - interval '1 hour'")
            await watching.execute("update subscription_groups set lease_until = now() - interval '1 second'")
            async with running(BrokerClient(database, group="g", slots=FOUR)) as heir:
                await heir.register_reliable_handler(TOPIC, handled.by("heir"), name="h")
                await eventually(lambda: len(handled.got) >= 64)
            await dead.end(0.1)
        assert handled.first_seen() == in_order(64)

    asyncio.run(story())


def test_an_event_that_fails_holds_up_no_other(database: str) -> None:
    """It comes again in its slot; events without the key are in one together."""

    async def story() -> None:
        seen = Seen(lambda event: event.payload == {"order": {"customer": "c1"}} and event.attempt == 1)
        payloads = [{"order": {"customer": "c1"}}, {"order": {"customer": "c2"}}, {"order": 5}, [1], "text", None]
        async with running(BrokerClient(database, group="g", slots=FOUR)) as client:
            registered = await client.register_reliable_handler(TOPIC, seen, name="h", retries_s=[0.05])
            await client.publish(*(Message("t", payload) for payload in payloads))
            await seen.wait_for(7)
            assert sorted(map(str, (event.payload for event in seen.events if event.attempt == 1))) == sorted(
                map(str, payloads)
            )
            assert [event.payload for event in seen.events if event.attempt == 2] == payloads[:1]
            await registered.cancel(unsubscribe=True)
            async with await connect(database) as db:
                await until(db, "select 1 where not exists (select from subscriptions)")

    asyncio.run(story())


def test_a_program_that_has_a_new_handler_gets_its_events(database: str) -> None:
    """The old one does not have it, and must not keep a slot from the new one."""

    async def story() -> None:
        a, b = Seen(), Seen()
        async with running(BrokerClient(database, group="g", slots=FOUR)) as old, await connect(database) as db:
            await old.register_reliable_handler(TOPIC, a, name="a")
            await until_held(db, {old: 4})
            async with running(BrokerClient(database, group="g", slots=FOUR)) as new:
                await new.register_reliable_handler(TOPIC, a, name="a")
                await new.register_reliable_handler(Subscription.to_topics("b"), b, name="b")
                await new.publish(*messages(0, 32))
                await new.publish(*(Message("b", {"order": {"customer": n}}) for n in range(32)))
                await b.wait_for(32)
                await a.wait_for(32)

    asyncio.run(story())


def test_a_group_is_read_in_one_way(database: str) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g", slots=FOUR) as client:
            await client.subscribe(TOPIC)
            async with BrokerClient(database, group="g", slots=Slots(5, "k")) as other:
                with pytest.raises(StateError, match=r"g/\d-of-4"):
                    await other.subscribe(TOPIC)
        async with BrokerClient(database, group="whole") as client:
            await client.subscribe(TOPIC)
            async with BrokerClient(database, group="whole", slots=FOUR) as other:
                with pytest.raises(StateError, match="whole"):
                    await other.subscribe(TOPIC)

    asyncio.run(story())


def test_a_rate_is_of_all_slots_together(database: str) -> None:
    async def story() -> None:
        at: list[float] = []

        async def handle(events: Sequence[Event]) -> None:
            at.extend([asyncio.get_running_loop().time()] * len(events))

        async with running(BrokerClient(database, group="g", slots=FOUR)) as client:
            await client.register_reliable_handler(TOPIC, handle, name="h", limits=Limits(rate_per_s=20))
            await client.publish(*messages(0, 60))
            await eventually(lambda: len(at) == 60)
        assert at[-1] - at[0] >= 1.5

    asyncio.run(story())


@pytest.fixture
def role(db: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"mailer_{uuid4().hex[:12]}"
    db.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    db.execute("select grant_usage('consumer', %s, array['g'])", [name])
    yield name
    db.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    db.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_who_was_granted_the_group_has_its_slots(database: str, role: str) -> None:
    async def story() -> None:
        handled = Handled()
        async with running(BrokerClient(make_conninfo(database, user=role), group="g", slots=FOUR)) as client:
            await client.register_reliable_handler(TOPIC, handled.by("it"), name="h")
            await client.publish(*messages(0, 32))
            await eventually(lambda: len(handled.got) == 32)

    asyncio.run(story())
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as session:
        for other in ("theirs/0-of-4", "g/0-of-4/x", "gg"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("select headgate.subscribe(%s)", [other])


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 3)), st.integers(2, 40))
def test_shares_are_even(members: dict[str, int], count: int) -> None:
    found = shares(members.items(), count)
    best = {name for name, handlers in members.items() if handlers == max(members.values())}
    assert set(found) <= best
    if best:
        sizes = [found.count(name) for name in best]
        assert sum(sizes) == count
        assert max(sizes) - min(sizes) <= 1
        assert shares(reversed(list(members.items())), count) == found


@pytest.mark.parametrize(("count", "key"), [(1, "k"), (0, "k"), (300, "k"), (4, ""), (4, "a..b"), (4, "a.")])
def test_slots_that_cannot_be(count: int, key: str) -> None:
    with pytest.raises(UsageError):
        Slots(count, key)


def test_parameters_of_slots_are_an_object() -> None:
    with pytest.raises(UsageError):
        FOUR.subscriptions(Subscription("e.payload = s.params", [1]))
    (first, *_) = Slots(2, "it's.k").subscriptions(Subscription("true", {"kind": "a"}))
    assert first.params == {"kind": "a", "headgate_slot": 0}
    assert "'it''s', 'k'" in first.condition
