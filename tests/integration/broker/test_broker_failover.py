"""A standby that was behind takes over: what its primary had published last is gone, and its positions are others'."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headgate.broker import BrokerClient, FailoverError, Message, Subscription, install
from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.server import BrokerServer
from headgate.embedded.postgres import PostgresServer
from headgate.sources.broker.group import BrokerGroup, StreamOffset
from headgate.sources.broker.options import BrokerSourceOptions
from tests.cdc.standby import cut_off, promote, standby_of, two_hosts, wait_for_replay
from tests.integration.broker.clients import Seen, connect, eventually, expect, running, until
from tests.integration.broker.doors import Ear, Heard

T = Subscription.to_topics("t")
NO_END = 2**63 - 1


@dataclass
class Pair:
    """A primary and its standby, reached by one address."""

    primary: PostgresServer
    standby: PostgresServer

    @property
    def url(self) -> str:
        return f"{two_hosts(self.primary, self.standby, 'headgate')} target_session_attrs=read-write"

    def cut(self) -> None:
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            wait_for_replay(connection)
        cut_off(self.standby)

    def fail_over(self) -> None:
        self.primary.kill()
        promote(self.standby)


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("failover")
    (directory / "run").mkdir()
    primary = PostgresServer(directory / "data", directory / "run", durable=False)
    primary.start()
    with psycopg.connect(primary.url, autocommit=True) as db:
        install(db)
    standby = standby_of(primary, directory / "standby")
    yield Pair(primary, standby)
    standby.stop()
    primary.stop()


async def publish(url: str, *numbers: int) -> None:
    """By somebody else, and dispatched at once: listeners find positions that are taken again."""
    async with await connect(url) as db:
        for number in numbers:
            await db.execute("select publish('t', to_jsonb(%s::int))", [number])
        await until(db, "select 1 from poll_for_events_v1() as p where not p.more")


def test_listeners_and_handlers_after_a_failover_that_lost_events(pair: Pair) -> None:
    async def story() -> None:
        seen, heard = Seen(), list[Any]()
        async with running(BrokerClient(pair.url, group="g", chunk=2)) as client:
            await client.register_reliable_handler(T, seen, name="h")
            stream = await client.register_fire_and_forget(T)

            async def listen() -> None:
                while True:
                    try:
                        heard.append((await anext(stream)).payload)
                    except FailoverError as error:
                        heard.append(type(error))

            listening = asyncio.create_task(listen())
            await client.publish(*[Message("t", number) for number in range(5)])
            await seen.wait_for(5)
            await expect(lambda: heard, [0, 1, 2, 3, 4])
            await asyncio.to_thread(pair.cut)
            await client.publish(*[Message("t", number) for number in (100, 101, 102)])
            await expect(lambda: heard[5:], [100, 101, 102])
            await seen.wait_for(8)
            await asyncio.to_thread(pair.fail_over)
            await publish(pair.standby.url, *range(200, 210))
            await expect(lambda: heard[8:], [FailoverError, *range(200, 210)])
            await eventually(lambda: {event.payload for event in seen.events} >= set(range(200, 210)))
            listening.cancel()

    asyncio.run(story())


def test_a_stream_after_a_failover_that_lost_events(pair: Pair) -> None:
    """Also one that had planned to read what is gone; known positions are others' now, and have other ids."""

    def publish_now(url: str, *numbers: int) -> None:
        asyncio.run(publish(url, *numbers))

    def read(begin: StreamOffset, end: StreamOffset) -> list[dict[str, Any]]:
        after = begin.pos if end.after is None else end.after
        return [row for batch in source.read(after, end) for row in batch.to_pylist()]

    source = BrokerGroup(BrokerSourceOptions.from_spark({"url": pair.url, "group": "spark"}))
    start = source.begin()
    publish_now(pair.url, *range(5))
    first = source.plan(start, 100, NO_END)
    seen = read(start, first)
    source.commit(first)
    pair.cut()
    publish_now(pair.primary.url, 100, 101, 102)
    lost = source.plan(first, 100, NO_END)
    seen += read(first, lost)
    pair.fail_over()
    source.close()
    publish_now(pair.standby.url, *range(200, 210))
    assert read(first, lost) == []  # which a stream that starts again does first
    source.commit(lost)
    after = source.plan(lost, 100, NO_END)
    new = read(lost, after)
    source.commit(after)
    assert [int(row["payload"]) for row in seen] == [*range(5), 100, 101, 102]
    assert [int(row["payload"]) for row in new] == list(range(200, 210))
    assert min(row["_position"] for row in new) > max(row["_position"] for row in seen)
    publish_now(pair.standby.url, 300)
    assert [int(row["payload"]) for row in read(after, source.plan(after, 100, NO_END))] == [300]
    source.release()


def test_a_listener_that_a_failover_forgot_is_known_again(pair: Pair) -> None:
    """Its group and its subscription were made after the standby had heard its last."""

    async def story() -> None:
        seen = Seen()
        await asyncio.to_thread(pair.cut)
        async with running(BrokerClient(pair.url, group="new")) as client:
            await client.register_reliable_handler(T, seen, name="h")
            stream = await client.register_fire_and_forget(T)
            await client.publish(Message("t", 1))
            await seen.wait_for(1)
            assert (await anext(stream)).payload == 1
            await asyncio.to_thread(pair.fail_over)
            async with await connect(pair.standby.url) as db:
                await db.execute("select subscribe('others')")  # it takes the number that was ours
                await until(db, "select 1 from subscription_groups where id like 'listeners of%%'")
                await until(db, "select 1 from subscriptions where group_id = 'new'")
                await until(db, "select 1 from clients as c, lateral jsonb_array_elements(c.handlers) as h"
                            " join subscriptions as s on s.id = (h ->> 0)::int where s.group_id = 'new'")  # fmt: skip
            await client.publish(Message("t", 2))
            assert 2 in await seen.wait_for(2)
            while True:
                try:
                    assert (await anext(stream)).payload == 2
                    break
                except FailoverError:
                    pass

    asyncio.run(story())


def test_streams_over_http_after_a_failover_that_lost_events(pair: Pair) -> None:
    """A listener is told, comes again by itself, and hears all of what the database has instead."""

    async def story() -> None:
        options = BrokerServerOptions(postgres_url=pair.url, port=0)
        heard: list[Heard] = []

        async def listen(doors: BrokerServer) -> None:
            last = ""
            async with httpx.AsyncClient(base_url=doors.url, timeout=60) as client:
                while True:
                    headers = {"last-event-id": last} if last else {}
                    async with client.stream("GET", "/events?topic=t", headers=headers) as response:
                        if response.status_code != 200:
                            await asyncio.sleep(0.05)
                            continue
                        ear = Ear(response)
                        while (block := await ear.block()) is not None:
                            last = ear.last_id
                            heard.extend([block] if block.topic or block.retry else [])

        def topics() -> list[Any]:
            assert not listening.done(), listening.exception()
            return [each.payload if each.topic == "t" else each.topic for each in heard if each.topic]

        async with BrokerServer.open(options) as doors:
            listening = asyncio.create_task(listen(doors))
            await eventually(lambda: bool(heard))
            await publish(pair.primary.url, 0, 1, 2)
            await expect(topics, [0, 1, 2])
            await asyncio.to_thread(pair.cut)
            await publish(pair.primary.url, 100, 101)
            await expect(lambda: topics()[3:], [100, 101])
            await asyncio.to_thread(pair.fail_over)
            await publish(pair.standby.url, *range(200, 205))
            await expect(lambda: topics()[5:], ["headgate.failover", *range(200, 205)])
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(story())
