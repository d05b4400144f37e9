"""Messages written by SQL that cannot be appended: they are set aside with their reason, and the others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from headgate.commitlog.install import install
from headgate.gateway.health import Health
from headgate.gateway.store import Store, Topic
from headgate.gateway.store.inbox import Inbox
from headgate.kernels.log.encode_rows import encode_rows
from tests.integration.gateway_store.stores import QUIET, in_loop, opened, query, until, values

QUICK = replace(QUIET, inbox_interval_s=0.01)
INSERT = "insert into kafka.inbox (topic_id, partition, key, value, headers, written_at) values "
# What somebody with the right to insert can put there; the checks of the table are newer than some rows.
POISON: dict[str, tuple[str, str]] = {
    "a partition that is not there": ("(%(topic)s, 99, 'k', 'bad', '[]', now())", "1 partitions"),
    "a partition below zero": ("(%(topic)s, -7, 'k', 'bad', '[]', now())", "1 partitions"),
    "a partition below zero by one": ("(%(topic)s, -1, 'k', 'bad', '[]', now())", "1 partitions"),
    "a topic that is not there": ("(99999, null, 'k', 'bad', '[]', now())", "topic is gone"),
    "broken base64": ("""(%(topic)s, 0, 'k', 'bad', '[["h",{"base64":"A"}]]', now())""", "headers"),
    "headers of another kind": ("""(%(topic)s, 0, 'k', 'bad', '{"h": 1}', now())""", "headers"),
    "headers that are numbers": ("""(%(topic)s, 0, 'k', 'bad', '[["h", 1]]', now())""", "headers"),
}
ODD_TIMES = ("infinity", "-infinity", "0044-03-15 BC", "294000-01-01")


async def drained(url: str) -> None:
    async def is_empty() -> bool:
        return await query(url, "select count(*) from kafka.inbox") == [(0,)]

    await until(is_empty)


@pytest.mark.parametrize("row", POISON, ids=POISON)
@in_loop
async def test_a_row_that_cannot_be_appended_stops_nobody(own_url: str, topic: str, row: str) -> None:
    written, reason = POISON[row]
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
    # As rows have it that were written before the checks.
    await query(own_url, "alter table kafka.inbox drop constraint inbox_headers_check")
    async with await psycopg.AsyncConnection.connect(own_url, autocommit=True) as connection:
        await connection.execute(b"select kafka.produce(%s, 'k', 'before')", [topic])
        await connection.execute((INSERT + written).encode(), {"topic": made.id})
        await connection.execute(b"select kafka.produce(%s, 'k', 'after')", [topic])
    async with opened(own_url, QUICK) as store:
        made = await _topic(store, topic)
        await drained(own_url)
        assert await values(store, made) == [b"before", b"after"]
        ((value, why),) = await query(own_url, "select value, reason from kafka.inbox_rejected")
        assert value == b"bad"
        assert reason in why
        assert store.rejected_total == 1
        assert "inbox" not in store.health.troubles


async def _topic(store: Store, name: str) -> Topic:
    found = await store.catalog.find(name)
    assert found is not None
    return found


@in_loop
async def test_times_that_kafka_cannot_say(own_url: str, topic: str) -> None:
    async with opened(own_url, QUICK) as store:
        made = await store.catalog.create(topic, 1, {})
        for time in ODD_TIMES:
            await query(own_url, INSERT + "(%s, null, 'k', %s, '[]', %s)", made.id, time.encode(), time)
        await drained(own_url)
        assert await values(store, made) == [time.encode() for time in ODD_TIMES]


@in_loop
async def test_a_message_without_a_key_for_a_topic_that_was_made_compact(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        await store.catalog.create(topic, 1, {})
        await query(own_url, "select kafka.produce(%s, null::text, 'v')", topic)
        await store.catalog.alter_configs(topic, {"cleanup.policy": "compact"}, ())
    async with opened(own_url, QUICK):
        await drained(own_url)
    ((why,),) = await query(own_url, "select reason from kafka.inbox_rejected")
    assert "must have a key" in why


@pytest.mark.parametrize(
    "headers",
    ['[["h",{"base64":"A"}]]', '[["h",{"base64":"AP8"}]]', '[["h",{"base64":"AP 8="}]]', '[["h",1]]', '{"h":1}'],
)
def test_broken_headers_are_refused_where_they_enter(own_url: str, headers: str) -> None:
    with psycopg.connect(own_url, autocommit=True) as connection:
        install(connection)
        connection.execute("select kafka.create_topic('t', 1, '{}', 'x', null)")
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("select kafka.produce('t', 'k', 'v', %s)", [headers])
        connection.execute(
            """select kafka.produce('t', 'k', 'v', '[["h", {"base64": "AP8="}], ["h", null], ["", "x"]]')"""
        )


@in_loop
async def test_what_was_set_aside_can_come_again(own_url: str, topic: str) -> None:
    async with opened(own_url, QUICK) as store:
        made = await store.catalog.create(topic, 1, {})
        await query(own_url, INSERT + "(%s, 1, 'k', 'v', '[]', now())", made.id)
        await drained(own_url)
        await store.catalog.add_partitions(topic, 2)
        assert await query(own_url, "select kafka.retry_rejected()") == [(1,)]
        await drained(own_url)
        assert await values(store, await _topic(store, topic), 1) == [b"v"]


@in_loop
async def test_a_failure_that_nobody_foresaw_is_narrowed_down_to_its_row(
    own_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode: Callable[..., bytes] = encode_rows

    def fails(keys: object, values: object, headers: object, times: object) -> bytes:
        if b"bad" in values.to_pylist():  # type: ignore[attr-defined]
            raise RuntimeError("a bug")
        return encode(keys, values, headers, times)

    monkeypatch.setattr("headgate.gateway.store.inbox.encode_rows", fails)
    async with opened(own_url) as store:
        await store.catalog.create(topic, 1, {})
    await query(own_url, "select kafka.produce(%s, 'k', i::text) from generate_series(1, 1000) as i", topic)
    await query(own_url, "select kafka.produce(%s, 'k', 'bad')", topic)
    await query(own_url, "select kafka.produce(%s, 'k', i::text) from generate_series(1001, 2000) as i", topic)
    async with opened(own_url, QUICK) as store:
        await drained(own_url)
        assert await values(store, await _topic(store, topic)) == [b"%d" % i for i in range(1, 2001)]
    assert await query(own_url, "select value, reason from kafka.inbox_rejected") == [(b"bad", "RuntimeError('a bug')")]


@in_loop
async def test_a_server_that_cannot_write_gets_no_row_set_aside(own_url: str, topic: str) -> None:
    """The rows are innocent, and go when it can."""
    async with opened(own_url) as store:
        await store.catalog.create(topic, 1, {})
    await query(own_url, "select kafka.produce(%s, 'k', 'v')", topic)
    await query(
        own_url,
        "create function kafka.full() returns trigger language plpgsql as"
        " $$ begin raise exception 'no space left on device' using errcode = 'disk_full'; end $$;"
        " create trigger full_disk before update on kafka.states execute function kafka.full()",
    )
    async with opened(own_url, QUICK) as store:

        async def is_told() -> bool:
            return "no space left" in str(store.health.troubles.get("inbox"))

        await until(is_told)
        assert await query(own_url, "select count(*) from kafka.inbox_rejected") == [(0,)]
        await query(own_url, "drop trigger full_disk on kafka.states")
        await drained(own_url)
        assert await values(store, await _topic(store, topic)) == [b"v"]

        async def is_well() -> bool:
            return not store.health.troubles

        await until(is_well)


@in_loop
async def test_many_at_once(own_url: str, topic: str) -> None:
    """Arrays, with and without keys and headers, come as they are, in their order."""
    async with opened(own_url, QUICK) as store:
        made = await store.catalog.create(topic, 1, {})
        texts = [f"v{i}" for i in range(100)]
        assert await query(own_url, "select kafka.produce_many(%s, null::text[], %s::text[])", topic, texts) == [(100,)]
        many = "select kafka.produce_many(%s, %s::bytea[], %s::bytea[], %s::jsonb[])"
        await query(own_url, many, topic, [b"k", None], [None, b"w"], ['[["h", "x"]]', None])
        assert await query(own_url, "select kafka.produce_many(%s, null::text[], '{}'::text[])", topic) == [(0,)]
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            await query(own_url, "select kafka.produce_many(%s, '{a}'::text[], '{b,c}'::text[])", topic)
        await drained(own_url)
        assert await values(store, made) == [*(text.encode() for text in texts), None, b"w"]
        assert await query(own_url, 'select headers from kafka.read(%s, 0, 100, 2) order by "offset"', topic) == [
            ([["h", "x"]],),
            ([],),
        ]


@in_loop
async def test_a_task_that_dies_is_begun_again(own_url: str) -> None:
    """Whatever it was that ended it; and somebody is told."""
    calls = 0
    health = Health()

    async def dies() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        health.works("chore")

    task = asyncio.create_task(health.tend("chore", dies))

    async def is_again() -> bool:
        return calls > 1

    await until(is_again)
    task.cancel()
    assert health.failures["chore"] >= 1


@in_loop
async def test_a_drain_costs_the_same_under_a_snapshot_and_misses_nothing(own_url: str, topic: str) -> None:
    """Rows that were taken stay in the index while a backup runs; an id may be committed long after greater ones."""
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        inbox = Inbox(lambda *_: None)
        async with (
            await psycopg.AsyncConnection.connect(own_url, autocommit=True) as connection,
            await psycopg.AsyncConnection.connect(own_url) as backup,
            await psycopg.AsyncConnection.connect(own_url) as late,
        ):
            await backup.execute(b"set transaction isolation level repeatable read")
            await backup.execute(b"select from kafka.topics")
            many = [b"-"] * 10_000
            for _ in range(6):
                await connection.execute(b"select kafka.produce_many(%s, %s::bytea[], %s)", [topic, many, many])
                await inbox.drain(connection)

            async def is_cheap() -> bool:
                """Beside a drain that knows nothing of those before."""
                new_s = await _least_s(lambda: Inbox(lambda *_: None).drain(connection))
                return await _least_s(lambda: inbox.drain(connection)) < new_s / 2

            await until(is_cheap)
            await late.execute(b"select kafka.produce(%s, 'k', 'late')", [topic])
            await connection.execute(b"select kafka.produce(%s, 'k', 'early')", [topic])
            await _least_s(lambda: inbox.drain(connection))
            await late.commit()
            await inbox.drain(connection)
            assert await store.latest(made.parts[0]) == 60_002
            assert await values(store, made, offset=60_000) == [b"early", b"late"]


@in_loop
async def test_messages_of_a_long_transaction_come_when_it_ends(own_url: str, topic: str) -> None:
    """Nobody else writes meanwhile, so that no later transaction has ended before it."""
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        inbox = Inbox(lambda *_: None)
        async with (
            await psycopg.AsyncConnection.connect(own_url, autocommit=True) as connection,
            await psycopg.AsyncConnection.connect(own_url) as writer,
        ):
            texts = [b"%d" % number for number in range(5)]
            for text in texts:
                await writer.execute(b"select kafka.produce(%s, 'k'::bytea, %b)", [topic, text])
                for _ in range(5):
                    await inbox.drain(connection)
            await writer.commit()
            await inbox.drain(connection)
        assert await values(store, made) == texts


async def _least_s(work: Callable[[], Awaitable[None]]) -> float:
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        await work()
        times.append(time.perf_counter() - begin)
    return min(times)
