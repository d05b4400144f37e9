"""Clients behind PgBouncer in transaction mode: another session each time, and what others have left in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from headgate.broker import BrokerClient, Message, database, install, installed
from headgate.broker.database import Connecting
from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.server import BrokerServer
from headgate.destinations.broker import BrokerDestination
from headgate.embedded.postgres import PostgresServer
from headgate.sources.broker.group import BrokerGroup
from headgate.sources.broker.options import BrokerSourceOptions
from tests.contract.destinations.test_contract import rows
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until
from tests.integration.broker.doors import listening
from tests.integration.broker.pooler import needs_pgbouncer, pgbouncer

pytestmark = needs_pgbouncer

SESSIONS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    directory: Path = tmp_path_factory.mktemp("pooled")
    (directory / "run").mkdir()
    server = PostgresServer(directory / "data", directory / "run", durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pooled(server: PostgresServer) -> Iterator[str]:
    """The pooler's address. All of its sessions have had guests who left things behind."""
    with pgbouncer(server.tcp_url, SESSIONS) as address:
        with psycopg.connect(address, autocommit=True) as connection:
            install(connection)
            assert installed(connection)
        with ExitStack() as guests:
            for _ in range(SESSIONS):  # all at once, so that each has a session of its own
                guest = guests.enter_context(psycopg.connect(address))
                guest.execute("set search_path = pg_catalog")
                guest.execute("create temporary table subscriptions (nonsense int)")
                guest.execute("create temporary table config (nonsense int)")
        yield address


def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name[:100])


@pytest.mark.parametrize(
    "options",
    [{"listen_url": True, "prepare_threshold": None}, {"listen": False, "prepare_threshold": None}, {}],
    ids=["direct", "polling", "untold"],
)
def test_a_client_behind_a_pooler(
    server: PostgresServer,
    pooled: str,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishes, handles, retries and listens. Who does not know of the pooler finds out, and says so."""
    monkeypatch.setattr(database, "PROBE_S", 0.5)
    caplog.set_level(logging.WARNING, "headgate.broker")
    topic = group(request)
    if options.get("listen_url"):
        options = options | {"listen_url": server.url}

    async def story() -> None:
        seen, flaky = Seen(), Seen(lambda event: event.payload == 3 and event.attempt == 1)
        wanted = ALL.to_topics(topic)
        async with running(BrokerClient(pooled, group=topic, **options)) as client, await connect(server.url) as db:
            await client.register_reliable_handler(wanted, seen, name="seen")
            await client.register_reliable_handler(wanted, flaky, name="flaky", retries_s=[0])
            stream = await client.register_fire_and_forget(wanted)
            for number in range(20):
                await client.publish(Message(topic, number))
            assert await seen.wait_for(20) == list(range(20))
            assert [(await anext(stream)).payload for _ in range(20)] == list(range(20))
            await eventually(lambda: [e.attempt for e in flaky.events if e.payload == 3] in ([1, 2], [1, 1, 2]))
            await until(db, f"select 1 from group_status where group_id = '{topic}' and behind = 0")
            told = [record.message for record in caplog.records if "pooler" in record.message]
            assert bool(told) is not bool(options), told

    asyncio.run(story())


def test_one_client_follows_another_behind_a_pooler(server: PostgresServer, pooled: str) -> None:
    async def story() -> None:
        first, second = Seen(), Seen()
        options: dict[str, Any] = {"listen_url": server.url, "prepare_threshold": None}
        wanted = ALL.to_topics("turns")
        async with running(BrokerClient(pooled, group="turns", **options)) as standby:
            async with running(BrokerClient(pooled, group="turns", **options)) as client:
                await client.register_reliable_handler(wanted, first, name="h")
                await client.publish(Message("turns", 1))
                await first.wait_for(1)
                await standby.register_reliable_handler(wanted, second, name="h")
            await standby.publish(Message("turns", 2))
            assert await second.wait_for(1) == [2]

    asyncio.run(story())


def test_doors_behind_a_pooler(server: PostgresServer, pooled: str) -> None:
    async def story() -> None:
        connecting = Connecting(listen_url=server.url, prepare_threshold=None)
        options = BrokerServerOptions(postgres_url=pooled, port=0, connecting=connecting)
        async with (
            BrokerServer.open(options) as doors,
            listening(doors, "door") as ear,
            await connect(server.url) as db,
        ):
            await db.execute("select publish('door', '1')")
            assert [each.payload for each in await ear.events(1)] == [1]

    asyncio.run(story())


@pytest.mark.parametrize("payload", ["json", "text"])
def test_a_pipeline_behind_a_pooler(pooled: str, payload: Literal["json", "text"]) -> None:
    """Rows into the broker, and out of it as a stream."""
    source = BrokerGroup(BrokerSourceOptions.from_spark({"url": pooled, "group": payload, "subscribe": payload}))
    start = source.begin()
    with BrokerDestination("d", pooled, payload=payload, exclusive=True).open() as sender:
        for part in range(3):
            sender.send(rows(payload, count=50, first=1 + 50 * part))
            assert not sender.finish().failures
    found = 0
    while found < 150:  # a poll of the client before, which nobody waits for any more, may still be under way
        end = source.plan(start, 1000, 2**63 - 1)
        found = sum(batch.num_rows for batch in source.read(start.pos, end))
    assert found == 150
    source.commit(end)
    source.release()
