"""A server that goes away under load and comes back: nothing is lost, the order is kept, and listening resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.broker import BrokerClient, Event, Message, install
from headgate.embedded.postgres import PostgresServer
from headgate.model import DeliveryError
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until

KILL = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


class Load:
    """Numbers that are enqueued until told to stop, and what two handlers and a listener saw of them."""

    def __init__(self, client: BrokerClient) -> None:
        self.client, self.count, self._stop = client, 0, asyncio.Event()
        self.seen, self.failing = Seen(), Seen(lambda event: event.payload % 97 == 0 and event.attempt == 1)

    async def register(self) -> None:
        await self.client.register_reliable_handler(ALL, self.seen, name="seen")
        await self.client.register_reliable_handler(ALL, self.failing, name="failing", retries_s=[0], batch_size=10)

    async def publish(self) -> None:
        while not self._stop.is_set():
            await self.client.enqueue(Message("t", self.count))
            self.count += 1
            if self.count % 50 == 0:
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._stop.set()

    def first_times(self) -> list[Any]:
        return list(dict.fromkeys(event.payload for event in self.seen.events))


async def all_is_handled(load: Load) -> None:
    async with asyncio.timeout(30):
        await load.client.flush()
        while len({event.payload for event in load.seen.events}) < load.count:
            await load.seen.wait_for(len(load.seen.events) + 1)
    assert load.first_times() == list(range(load.count))
    async with asyncio.timeout(30):
        while {event.payload for event in load.failing.events} != set(range(load.count)):
            await load.failing.wait_for(len(load.failing.events) + 1)


def test_backends_are_ended_under_load(database: str) -> None:
    async def story() -> None:
        client = BrokerClient(database, group="g", chunk=50, flush_interval_s=0.005)
        async with running(client), await connect(database) as db:
            load = Load(client)
            await load.register()
            publishing = asyncio.create_task(load.publish())
            for round_number in range(1, 5):
                await load.seen.wait_for(len(load.seen.events) + 200 * round_number)
                await db.execute(KILL)
            await load.end()
            await publishing
            await all_is_handled(load)
            await eventually(lambda: client._database.listening)
            await until(db, "select 1 from group_status where cursor = last_pos")
            dead = await (await db.execute("select handler, error from dead_letters")).fetchall()
            assert dead == []

    asyncio.run(story())


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("outage")
    (directory / "run").mkdir()
    server = PostgresServer(directory / "data", directory / "run", durable=False)
    server.start()
    with psycopg.connect(server.url, autocommit=True) as db:
        install(db)
    yield server
    server.stop()


def test_the_server_restarts_under_load(server: PostgresServer) -> None:
    async def story() -> None:
        client = BrokerClient(server.url, group="g", chunk=50, flush_interval_s=0.005)
        async with running(client):
            load = Load(client)
            await load.register()
            stream = await client.register_fire_and_forget(ALL, buffer=1_000_000)
            publishing = asyncio.create_task(load.publish())
            await load.seen.wait_for(500)
            await asyncio.to_thread(server.restart)
            await load.end()
            await publishing
            await all_is_handled(load)
            await eventually(lambda: client._database.listening)
            async with await connect(server.url) as db, asyncio.timeout(8):
                await db.execute("select publish('t', '-1')")
                while (await anext(stream)).payload != -1:
                    pass
                while load.seen.events[-1].payload != -1:
                    await load.seen.wait_for(len(load.seen.events) + 1)

            # It goes away for good: the end does not wait for ever, and says what it could not publish.
            await asyncio.to_thread(server.stop)
            lost = await client.enqueue(Message("t", "lost"))
            await client.end(deadline_s=0.2)
            assert isinstance(lost.exception(), DeliveryError)

    asyncio.run(story())


def test_a_failure_is_noted_when_the_server_is_back(database: str) -> None:
    """A handler that fails while nobody can be told: its retry is written later, and not forgotten."""

    async def story() -> None:
        calls: list[int] = []
        done = asyncio.Event()

        async def fail(events: Sequence[Event]) -> None:
            calls.append(events[0].attempt)
            if len(calls) == 1:
                await db.execute(KILL)
                raise ValueError("once")
            done.set()

        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, fail, name="h", retries_s=[0])
            await client.publish(Message("t", 1))
            async with asyncio.timeout(20):
                await done.wait()
            assert calls == [1, 2]

    asyncio.run(story())
