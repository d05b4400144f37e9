"""Events over HTTP: in order, resumed by position, shared by many, and bounded."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest

from headgate.broker.http.options import StreamLimits

from .doors import TIMEOUT_S, fetch, listening, opened, publish, until, until_nobody_listens


def position(place: str) -> int:
    """Of an id; behind it is the past of the server."""
    return int(place.partition("-")[0])


def test_topics_are_heard_in_order_and_no_others(database: str) -> None:
    async def story() -> None:
        async with opened(database) as (doors, db), listening(doors, "b", "a") as ear:
            odd = {"x": "ü\n\r\u2028"}
            await publish(db, "a", odd, 1)
            await publish(db, "c", 2)
            await publish(db, "b", None)
            heard = await ear.events(3)
            assert [(each.topic, each.payload) for each in heard] == [
                ("a", {"x": "ü\n\r\u2028"}),
                ("a", 1),
                ("b", None),
            ]
            positions = await fetch(db, "select pos from deliveries order by pos")
            assert [position(each.id) for each in heard] == [pos for (pos,) in positions]

    asyncio.run(story())


def test_a_late_commit_is_not_missed_by_who_comes_back(database: str) -> None:
    async def story() -> None:
        async with (
            opened(database) as (doors, db),
            await psycopg.AsyncConnection.connect(database, options="-c search_path=headgate") as writer,
        ):
            async with listening(doors, "t") as ear:
                await publish(writer, "t", "first")  # and stays open
                await publish(db, "t", "second")
                [second] = await ear.events(1)
                assert second.payload == "second"
            await writer.commit()
            async with listening(doors, "t", after=second.id) as ear:
                [first] = await ear.events(1)
            assert first.payload == "first"
            ids = dict(await fetch(db, "select payload #>> '{}', id from events"))
            assert ids["first"] < ids["second"]  # by which one would have missed it

    asyncio.run(story())


def test_what_comes_while_nobody_listens_is_replayed(database: str) -> None:
    async def story() -> None:
        async with opened(database) as (doors, db):
            async with listening(doors, "t") as ear:
                await publish(db, "t", 1)
                await ear.events(1)
            await until_nobody_listens(doors)
            await publish(db, "t", *range(2, 1300))  # more than one read
            async with listening(doors, "t", after=ear.last_id) as ear, listening(doors, "t") as other:
                assert [each.payload for each in await ear.events(1298)] == list(range(2, 1300))
                await publish(db, "t", "live")
                assert [each.payload for each in await ear.events(1)] == ["live"]
                while (await other.events(1))[0].payload != "live":  # from where it came in
                    pass

    asyncio.run(story())


def test_an_idle_listener_learns_how_far_it_is(database: str) -> None:
    async def story() -> None:
        limits = StreamLimits(heartbeat_s=0.05)
        async with opened(database, limits=limits) as (doors, db), listening(doors, "t") as ear:
            await publish(db, "other", 1, 2, 3)
            while not ear.last_id or not position(ear.last_id):
                await ear.block()
            assert not [each for each in [await ear.block()] if each and each.topic]

    asyncio.run(story())


def test_what_is_gone_is_said(database: str) -> None:
    async def story() -> None:
        async with opened(database) as (doors, db):
            async with listening(doors, "t") as ear:
                await publish(db, "t", "heard")
                await ear.events(1)
            await until_nobody_listens(doors)
            await db.execute("select maintain(now() + interval '10 minutes')")  # the subscription expires
            await publish(db, "t", "lost")

            async def dispatched() -> bool:
                return not await fetch(db, "select from unread_events")

            await until(dispatched)
            async with listening(doors, "t", after=ear.last_id) as back:
                [gap] = await back.events(1)
                assert gap.topic == "headgate.gap"
                assert gap.payload == {"from": position(ear.last_id), "to": position(gap.id)}
                await publish(db, "t", "live")
                assert [each.payload for each in await back.events(1)] == ["live"]
            async with listening(doors, "t", after="99999999999999999") as stranger:
                assert (await stranger.events(1))[0].topic == "headgate.gap"

    asyncio.run(story())


def test_a_dropped_partition_is_a_gap(db: psycopg.Connection[Any]) -> None:
    def one(statement: str, *values: Any) -> Any:
        row = db.execute(statement.encode(), values).fetchone()
        assert row is not None
        return row[0]

    group = one("select group_id from open_stream_v1(array['t'], '10 days')")
    db.execute("select publish('t', '1')")
    db.execute("select poll_for_events()")
    assert one("select resume_stream_v1(%s, 1)", group) == 1
    db.execute("select set_group_cursor_v1(%s, 1, false, null, null)", [group])
    for hours in (1, 2, 3, 5, 7):
        db.execute("select publish('t', '2')")
        db.execute("select poll_for_events()")
        db.execute("select maintain(now() + %s * interval '1 hour')", [hours])
        db.execute(
            "select set_group_cursor_v1(%s, (select max(pos) from dispatcher_state), false, null, null)", [group]
        )
    first = one("select min(number) from partitions where parent = 'deliveries'")
    assert first > 0
    assert one("select resume_stream_v1(%s, 1)", group) == first << 32


def test_a_hundred_listeners_share_one_subscription_and_one_reader(database: str) -> None:
    async def story() -> None:
        async with opened(database) as (doors, db), AsyncExitStack() as stack:
            ears = [await stack.enter_async_context(listening(doors, "room", "hall")) for _ in range(100)]
            assert (doors.metrics()["connections"], doors.metrics()["streams"]) == (100, 1)
            assert await fetch(db, "select count(*) from subscriptions") == [(1,)]
            await publish(db, "hall", "hello")
            for ear in ears:
                assert [each.payload for each in await ear.events(1)] == ["hello"]

    asyncio.run(story())


def test_a_slow_listener_is_cut_off_and_goes_on_later(database: str) -> None:
    async def story() -> None:
        limits = StreamLimits(buffer_bytes=200_000)
        async with (
            opened(database, limits=limits) as (doors, db),
            listening(doors, "t") as quick,
            AsyncExitStack() as ending,
        ):
            host, port = doors.url.removeprefix("http://").split(":")
            slow = ending.enter_context(socket.create_connection((host, int(port))))
            slow.sendall(b"GET /events?topic=t HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            slow.settimeout(TIMEOUT_S)
            start = await asyncio.to_thread(slow.recv, 1000)
            assert b"200 OK" in start
            padding = "x" * 100_000
            for number in range(120):
                await publish(db, "t", [number, padding])
                await quick.events(1)  # who reads is not held up
            said = start
            while b"headgate.slow" not in said:
                more = await asyncio.to_thread(slow.recv, 1 << 20)
                assert more, "it was cut off without a word"
                said += more
            got = said.count(b"event: t\n")
            last_id = said[: said.rindex(b"event: t\n")].rpartition(b"id: ")[2].strip().decode()
            assert got < 120
            async with listening(doors, "t", after=last_id) as ear:
                rest = [each.payload[0] for each in await ear.events(120 - got)]
            assert rest == list(range(got, 120))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("", {}, 400),
        ("?topic=", {}, 400),
        ("?topic=a&condition=true", {}, 400),
        ("?" + "&".join(f"topic={n}" for n in range(51)), {}, 400),
        ("?topic=a%0Adata:x", {}, 400),
        ("?topic=" + "a" * 256, {}, 400),
        ("?topic=headgate.gap", {}, 400),
        ("?topic=a", {"last-event-id": "pm17"}, 400),
        ("?topic=a", {"last-event-id": "-1"}, 400),
        ("?topic=a", {"last-event-id": "9" * 40}, 400),
        ("?topic=a", {"origin": "http://evil.example"}, 403),
        ("?topic=a", {"authorization": "Bearer wrong"}, 401),
        ("?topic=a", {"authorization": ""}, 401),
    ],
    ids=[
        "no-topic", "empty", "condition", "too-many", "line-break", "too-long", "our-name", "word", "negative", "huge",
        "foreign-page", "wrong-token", "no-token",
    ],
)  # fmt: skip
def test_what_is_refused(shared_doors: httpx.Client, query: str, headers: dict[str, str], status: int) -> None:
    answer = shared_doors.get(f"/events{query}", headers={"authorization": "Bearer t0ken-of-test", **headers})
    assert answer.status_code == status
    assert answer.json()["remedy"]


def test_health_needs_no_token(shared_doors: httpx.Client) -> None:
    assert shared_doors.get("/health").json() == {"status": "ok"}


def test_connections_are_bounded(database: str) -> None:
    async def story() -> None:
        async with opened(database, limits=StreamLimits(connections=1)) as (doors, _):
            async with listening(doors, "a"), httpx.AsyncClient(base_url=doors.url) as client:
                answer = await client.get("/events?topic=b")
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            await until_nobody_listens(doors)
            async with listening(doors, "b"):
                pass

    asyncio.run(story())


def test_a_stop_ends_streams_cleanly(database: str) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            doors, db = await stack.enter_async_context(opened(database))
            ending = AsyncExitStack()
            ear = await ending.enter_async_context(listening(doors, "t"))
            await publish(db, "t", 1)
            await ear.events(1)
            stopping = asyncio.create_task(stack.aclose())
            while await ear.block() is not None:
                pass
            await ending.aclose()
            async with asyncio.timeout(TIMEOUT_S):
                await stopping

    asyncio.run(story())


def test_a_database_that_fails_while_a_listener_comes_back_ends_the_stream_cleanly(database: str) -> None:
    """The answer has begun by then: a clean end has the listener come again, a broken one is an error to many."""

    async def story() -> None:
        rename = "alter function {} rename to {}"
        broken = rename.format("resume_stream_v2", "gone")
        async with opened(database) as (doors, db), listening(doors, "t") as ear:
            await publish(db, "t", 1)
            [first] = await ear.events(1)
            await db.execute(broken.encode())
            async with httpx.AsyncClient(base_url=doors.url, timeout=TIMEOUT_S) as client:
                answer = await client.get("/events?topic=t", headers={"last-event-id": first.id})
            assert (answer.status_code, answer.content) == (200, b"")
            await db.execute(rename.format("gone", "resume_stream_v2").encode())
            await publish(db, "t", 2)
            async with listening(doors, "t", after=first.id) as again:
                [second] = await again.events(1)
            assert second.payload == 2

    asyncio.run(story())
