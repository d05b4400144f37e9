"""Two bridges on one NATS, with tables of the same name, and a bridge with subjects of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest

from headgate.consume import CaughtUp, Consumer
from headgate.destinations.nats import NatsOptions
from headgate.model import ConfigError
from headgate.replica import Replica, open_target
from headgate.snapshots.jobs import Job
from headgate.snapshots.requests import RequestListener
from tests.snapshots import Origin, fresh_database, shared_stack

SHOP = "create table users (id int primary key, name text); insert into users values (1, 'shop')"
BANK = "create table users (id int primary key, iban text, pin int); insert into users values (7, 'DE07', 1234)"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(within_time())


@asynccontextmanager
async def opened(*options: dict[str, Any]) -> AsyncIterator[list[Origin]]:
    with ExitStack() as stack:
        databases = [stack.enter_context(fresh_database()) for _ in options]
        origins = [await Origin.open(each, **some) for each, some in zip(databases, options, strict=True)]
        try:
            yield origins
        finally:
            for origin in origins:
                await origin.close()


async def replicate(origin: Origin, path: Path, **options: Any) -> list[Any]:
    target = open_target(f"sqlite:///{path}")
    try:
        replica = Replica(target, origin.database.nats_url, ["users"], cdc_stream=origin.stream, **options)
        await replica.run(once=True)
        return target.execute("select * from users order by 1")
    finally:
        target.close()


def test_each_replica_has_its_own_database(tmp_path: Path) -> None:
    async def test() -> None:
        bank = {"statements": BANK, "stream": "BANK", "subject": "bank.{schema}.{table}.{op}"}
        async with opened({"statements": SHOP}, bank) as (shop, other):
            assert await replicate(shop, tmp_path / "shop.db") == [(1, "shop")]
            assert await replicate(other, tmp_path / "bank.db") == [(7, "DE07", 1234)]
            assert (shop.requests, other.requests) == (["users"], ["users"])
            shop.sql("insert into users values (2, 'more')")
            other.sql("update users set pin = 1")
            await shop.pump()
            await other.pump()
            assert await replicate(shop, tmp_path / "shop.db") == [(1, "shop"), (2, "more")]
            assert await replicate(other, tmp_path / "bank.db") == [(7, "DE07", 1)]
            assert await replicate(other, tmp_path / "new.db") == [(7, "DE07", 1)]

    run(test)


@pytest.mark.parametrize(
    "subject", ["{schema}.{table}.{op}", "{table}.{op}", "{op}.{schema}.{table}", "{schema}.{table}", "{op}"]
)
def test_subjects_are_those_that_the_bridge_has(subject: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with opened({"statements": SHOP, "subject": f"acme.{subject}"}) as (shop,):
            assert await replicate(shop, tmp_path / "r.db") == [(1, "shop")]
            shop.sql("insert into users values (2, 'more'); create table other (id int primary key)")
            other = "insert into other values"
            shop.sql(f"begin; {other} (1); update users set name = 'new'; {other} (2); commit")
            await shop.pump()
            assert await replicate(shop, tmp_path / "r.db") == [(1, "new"), (2, "new")]

    run(test)


def test_a_subject_that_the_stream_does_not_keep_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened({"statements": SHOP, "subject": "acme.{schema}.{table}.{op}"}) as (shop,):
            with pytest.raises(ConfigError, match=r"keeps acme\.>, and nothing on cdc\.public\.users"):
                await replicate(shop, tmp_path / "r.db", subject="cdc.{schema}.{table}.{op}")

    run(test)


def test_up_to_date_means_up_to_the_end_of_the_stream() -> None:
    async def test() -> None:
        async with opened({"statements": SHOP}) as (shop,):
            shop.sql("create table other (id int primary key)")
            async with Consumer(shop.database.nats_url, ["users"]) as consumer:
                async for step in consumer.steps():
                    if isinstance(step, CaughtUp):
                        break
                position = consumer.position()
            shop.sql("insert into other select generate_series(1, 30)")
            await shop.pump()
            last = (await shop.jetstream.stream_info("CDC")).state.last_seq
            async with Consumer(shop.database.nats_url, ["users"], position=position) as later:
                async for step in later.steps():
                    if isinstance(step, CaughtUp):
                        break
                assert later.position()["sequence"] == last

    run(test)


class Maker:
    """Who makes snapshots for a bridge, as far as requests are concerned."""

    knows_tables = True

    def __init__(self, cdc_stream: str, *, is_default: bool) -> None:
        self.cdc_stream = cdc_stream
        self.is_default = is_default

    def serves(self, cdc_stream: str | None) -> bool:
        return self.is_default if cdc_stream is None else cdc_stream == self.cdc_stream

    def table_of(self, tokens: tuple[str, ...]) -> tuple[str, str] | None:
        return ("public", "users") if tokens == ("users",) else None

    def request(self, schema: str, table: str, method: str = "", chunk_rows: int = 0) -> tuple[Job, bool]:
        return Job(f"s-{self.cdc_stream}", schema, table, method, chunk_rows), False

    def answer(self, job: Job, *, shared: bool) -> dict[str, Any]:
        return {"accepted": True, "snapshot_id": job.id}

    def progress(self, job_id: str, told: dict[str, int]) -> None:
        pass


def test_a_request_is_answered_by_the_bridge_of_its_stream_alone() -> None:
    url = shared_stack().endpoints.nats_url or ""
    options = NatsOptions(url=url, stream="X", subjects=("x",))
    makers = [Maker("CDC", is_default=True), Maker("BANK", is_default=False)]
    listeners = [RequestListener(options, maker) for maker in makers]

    async def answers(payload: bytes, table: str = "users") -> list[Any]:
        client = await nats.connect(url)
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        await client.publish(f"snapshot.request.{table}", payload, reply=inbox)
        found: list[Any] = []
        try:
            while True:
                found.append(json.loads((await subscription.next_msg(timeout=0.8)).data))
        except nats.errors.TimeoutError:
            await client.close()
            return found

    async def test() -> None:
        assert [each["snapshot_id"] for each in await answers(b'{"cdc_stream": "BANK"}')] == ["s-BANK"]
        assert [each["snapshot_id"] for each in await answers(b'{"cdc_stream": "CDC"}')] == ["s-CDC"]
        assert [each["snapshot_id"] for each in await answers(b"")] == ["s-CDC"]
        assert await answers(b'{"cdc_stream": "NOBODY"}') == []
        for damaged in (b'{"cdc_stream": 7}', b"[]", b'{"tables": "*"}', b"[" * 4000, b'{"method": "x", "more": 1}'):
            [refused] = await answers(damaged)
            assert refused["error"]["kind"] == "data"
        [unknown] = await answers(b'{"cdc_stream": "BANK"}', "ghosts")
        assert "ghosts" in unknown["error"]["message"]

    for listener in listeners:
        listener.start()
        assert listener.listening.wait(10)
    try:
        run(test)
    finally:
        for listener in listeners:
            listener.stop()
