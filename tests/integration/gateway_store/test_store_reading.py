"""Appends and fetches through one store, and through two that share a database."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from headgate.gateway.store import Store, StoreSettings, Want
from headgate.wire.kafka import Codec, Record, encode_batch, split_batches
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused
from tests.integration.gateway_store.stores import (
    NOW,
    QUIET,
    batch,
    in_loop,
    opened,
    read,
    records,
    sequenced,
    until,
    values,
)

NO_CACHE = replace(QUIET, cache_bytes=0)


@pytest.mark.parametrize("settings", [QUIET, NO_CACHE], ids=["memory", "sql"])
@in_loop
async def test_fetch(store_url: str, topic: str, settings: StoreSettings) -> None:
    async with opened(store_url, settings) as store:
        made = await store.catalog.create(topic, 2, {})
        assert (await store.append(made, 0, batch(b"a", b"b", b"c"))).base_offset == 0
        assert (await store.append(made, 0, batch(b"d", b"e", codec=Codec.ZSTD) + batch(b"f"))).base_offset == 3
        found = await read(store, made, offset=0)
        assert (found.high_watermark, found.log_start_offset) == (6, 0)
        assert [record.offset for record in records(found)] == [0, 1, 2, 3, 4, 5]
        middle = await read(store, made, offset=4)  # the whole batch that contains it
        assert [record.value for record in records(middle)] == [b"d", b"e", b"f"]
        tiny = await read(store, made, offset=0, max_bytes=1)  # one batch at least
        assert [record.value for record in records(tiny)] == [b"a", b"b", b"c"]
        assert (await read(store, made, offset=6)).error is ErrorCode.NONE
        assert (await read(store, made, offset=7)).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await read(store, made, 1)).high_watermark == 0
        headers = [header for header, _ in split_batches(b"".join(found.buffers))]
        assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 0), (3, 0), (5, 0)]


@pytest.mark.parametrize("settings", [QUIET, NO_CACHE], ids=["memory", "sql"])
@in_loop
async def test_limits_hold_over_all_partitions(store_url: str, topic: str, settings: StoreSettings) -> None:
    async with opened(store_url, settings) as store:
        made = await store.catalog.create(topic, 3, {})
        data = batch(bytes(1000))
        await asyncio.gather(*(store.append(made, index, data) for index in range(3) for _ in range(4)))
        wants = [Want(part, 0, 2 * len(data)) for part in made.parts]
        found = await store.fetch(wants, max_bytes=3 * len(data), min_bytes=1, max_wait_s=0)
        assert [each.part_id for each in found] == list(made.parts)
        assert [len(records(each)) for each in found] == [2, 1, 0]
        small = await store.fetch(wants, max_bytes=10, min_bytes=1, max_wait_s=0)
        assert [len(records(each)) for each in small] == [1, 0, 0]


@in_loop
async def test_unknown_partition(store_url: str) -> None:
    async with opened(store_url) as store:
        (found,) = await store.fetch([Want(2**30, 0, 100)], max_bytes=100, min_bytes=1, max_wait_s=5)
        assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_memory_gives_what_sql_gives(store_url: str, topic: str) -> None:
    """However little memory there is, and wherever one begins."""
    async with opened(store_url, replace(QUIET, cache_bytes=3000)) as store, opened(store_url, NO_CACHE) as plain:
        made = await store.catalog.create(topic, 2, {})
        for turn in range(40):
            await store.append(made, turn % 2, batch(*(b"%d" % turn,) * (turn % 7 + 1)))
        await plain.catalog.refresh()
        for index in range(2):
            end = (await read(plain, made, index)).high_watermark
            for offset in range(end + 1):
                expected = records(await read(plain, made, index, offset))
                assert records(await read(store, made, index, offset)) == expected


@in_loop
async def test_a_reader_is_woken_by_an_append(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 1, {})
        want = Want(made.parts[0], 0, 1000)
        waiting = asyncio.create_task(store.fetch([want], max_bytes=1000, min_bytes=1, max_wait_s=30))
        await until(lambda: _is_waiting(store, made.parts[0]))
        await store.append(made, 0, batch(b"a"))
        async with asyncio.timeout(5):
            (found,) = await waiting
        assert [record.value for record in records(found)] == [b"a"]


async def _is_waiting(store: Store, part_id: int) -> bool:
    return bool(store.tails.get(part_id).waiters)


@pytest.mark.parametrize("min_bytes", [1, 100], ids=["one batch", "two batches"])
@in_loop
async def test_a_reader_is_woken_by_another_gateway(store_url: str, topic: str, min_bytes: int) -> None:
    """By its notification: the poll is far away."""
    far = replace(QUIET, poll_interval_s=50)
    async with opened(store_url, far) as store, opened(store_url, far) as other:
        made = await other.catalog.create(topic, 1, {})
        want = Want(made.parts[0], 0, 1000)
        await until(lambda: _is_listening(store, other))
        waiting = asyncio.create_task(store.fetch([want], max_bytes=1000, min_bytes=min_bytes, max_wait_s=30))
        await until(lambda: _is_waiting(store, made.parts[0]))
        await other.append(made, 0, batch(b"a"))
        await other.append(made, 0, batch(b"b"))
        async with asyncio.timeout(5):
            (found,) = await waiting
        assert records(found)[0].value == b"a"


async def _is_listening(*stores: Store) -> bool:
    return all("kafka_log" in store._listener._heard for store in stores)


@in_loop
async def test_a_reader_without_news_waits_as_long_as_it_said(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 1, {})
        loop = asyncio.get_running_loop()
        start = loop.time()
        (found,) = await store.fetch([Want(made.parts[0], 0, 10)], max_bytes=10, min_bytes=1, max_wait_s=0.1)
        assert 0.09 < loop.time() - start < 5
        assert (found.error, found.buffers) == (ErrorCode.NONE, [])


@in_loop
async def test_delete_records(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 1, {})
        data = batch(b"a", b"b")
        for _ in range(3):
            await store.append(made, 0, data)
        assert await store.delete_records(made, 0, 3) == 3
        assert await store.delete_records(made, 0, 1) == 3  # never back
        assert (await read(store, made, offset=2)).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await values(store, made, offset=3) == [b"b", b"a", b"b"]
        assert await store.sizes([made]) == {made.parts[0]: 2 * len(data)}
        with pytest.raises(Refused) as caught:
            await store.delete_records(made, 0, 7)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await store.delete_records(made, 0, -1) == 6
        assert await store.earliest(made.parts[0]) == await store.latest(made.parts[0]) == 6
        assert await store.sizes([made]) == {made.parts[0]: 0}
        assert (await store.append(made, 0, data)).base_offset == 6


@in_loop
async def test_offsets_by_time(store_url: str, topic: str) -> None:
    """Against a list, with clocks that go back, compression, deleted records and several segments."""
    rng = random.Random(7)
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 1, {"retention.ms": "98765432"})
        times: list[int] = []
        for turn in range(30):
            some = [NOW - 1000 + turn * 10 + rng.randrange(-40, 40) for _ in range(rng.randrange(1, 6))]
            data = [Record(index, time, None, b"v") for index, time in enumerate(some)]
            await store.append(made, 0, encode_batch(data, codec=rng.choice(list(Codec))))
            times += some
            if turn % 10 == 9:
                async with store.pool.connection() as connection:
                    await connection.execute(
                        b"select kafka.open_segment(class_id) from kafka.partitions where part_id = %s", made.parts
                    )
        for start in (0, 7, 61):
            await store.delete_records(made, 0, start)
            for wanted in range(NOW - 1050, NOW - 640, 3):
                expected = next((at for at in range(start, len(times)) if times[at] >= wanted), None)
                found = await store.at_time(made.parts[0], wanted)
                assert (found and found.offset) == expected, (start, wanted)
                assert found is None or found.timestamp == times[found.offset]
            newest = max(times[start:])
            found = await store.max_timestamp(made.parts[0])
            assert found is not None
            assert (found.offset, found.timestamp) == (times.index(newest, start), newest)


@in_loop
async def test_nothing_in_an_empty_partition(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 1, {})
        assert await store.at_time(made.parts[0], 0) is None
        assert await store.max_timestamp(made.parts[0]) is None


@in_loop
async def test_order_of_calls_is_order_in_the_log(store_url: str, topic: str) -> None:
    async with opened(store_url, replace(QUIET, group_bytes=2000)) as store:
        made = await store.catalog.create(topic, 1, {})
        answers = await asyncio.gather(*(store.append(made, 0, batch(b"%d" % turn)) for turn in range(200)))
        assert [answer.base_offset for answer in answers] == list(range(200))
        assert await values(store, made) == [b"%d" % turn for turn in range(200)]


@in_loop
async def test_producer_ids_are_unique(store_url: str) -> None:
    async with opened(store_url) as store, opened(store_url) as other:
        ids = await asyncio.gather(*(each.new_producer_id() for each in (store, other) for _ in range(10)))
        assert len(set(ids)) == 20


@in_loop
async def test_a_duplicate_does_not_end_the_log(store_url: str, topic: str) -> None:
    """Also where nothing else is in memory, as after a restart."""
    async with opened(store_url) as store, opened(store_url) as other:
        made = await store.catalog.create(topic, 1, {})
        for sequence in range(4):
            await store.append(made, 0, sequenced(8, sequence, b"%d" % sequence))
        for gateway in (store, other):
            assert (await gateway.append(made, 0, sequenced(8, 1, b"1"))).base_offset == 1
            assert await values(gateway, made) == [b"0", b"1", b"2", b"3"]
            assert await values(gateway, made, offset=2) == [b"2", b"3"]


@in_loop
async def test_two_gateways_append_by_turns(store_url: str, topic: str) -> None:
    """Neither serves its own memory as if there were nothing between."""
    async with opened(store_url) as store, opened(store_url) as other:
        made = await store.catalog.create(topic, 1, {})

        async def append_all(gateway: Store, name: int) -> None:
            for turn in range(30):
                await gateway.append(made, 0, batch(b"%d %d" % (name, turn)))

        await asyncio.gather(append_all(store, 0), append_all(other, 1))
        for gateway in (store, other):

            async def has_all(gateway: Store = gateway) -> bool:
                return len(await values(gateway, made)) == 60

            await until(has_all)


@in_loop
async def test_news_that_come_in_between_two_looks(store_url: str, topic: str) -> None:
    """While PostgreSQL is asked for one partition, it is heard of another that it has more than is known here."""
    async with opened(store_url) as store:
        made = await store.catalog.create(topic, 2, {})
        wants = [Want(part, offset, 1000, is_committed=True) for part, offset in zip(made.parts, (0, 1), strict=True)]
        for index in range(2):
            await store.append(made, index, batch(b"a"))
        await store.fetch(wants[1:], max_bytes=1000, min_bytes=0, max_wait_s=0)  # from now on it is known
        ask = store._reader._ask

        async def slow(asked: list[Want], max_bytes: int) -> object:
            found = await ask(asked, max_bytes)
            store.tails.heard(made.parts[1], 2, 0)
            return found

        store._reader._ask = slow  # type: ignore[method-assign,assignment]
        first, second = await store.fetch(wants, max_bytes=1000, min_bytes=0, max_wait_s=0)
        assert (len(records(first)), first.last_stable_offset) == (1, 1)
        assert (second.error, records(second), second.last_stable_offset) == (ErrorCode.NONE, [], 1)
