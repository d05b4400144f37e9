"""What one gateway does for all: retention, compaction, the inbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from headgate.gateway.store import Store, Topic
from headgate.gateway.store.compaction import compact
from headgate.gateway.store.retention import retain
from headgate.kernels.log.partitioner import murmur2
from headgate.wire.kafka import Codec, Record, encode_batch, read_batch_header
from headgate.wire.kafka.error_codes import ErrorCode
from tests.integration.gateway_store.stores import (
    QUIET,
    batch,
    in_loop,
    opened,
    query,
    read,
    records,
    until,
    values,
)
from tests.stock import both_servers

NO_CACHE = replace(QUIET, cache_bytes=0)


@pytest.fixture(params=both_servers)
def own_url(request: pytest.FixtureRequest) -> str:
    """On the embedded server and on Debian's: detaching, rewriting and plans differ by version and settings."""
    with_database = "embedded_own_url" if request.param == "embedded" else "stock_own_url"
    return str(request.getfixturevalue(with_database))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


async def keep_house(url: str, store: Store, segment_bytes: int = 1 << 30, least_s: float = 1000.0) -> None:
    settings = replace(QUIET, segment_bytes=segment_bytes, least_segment_s=least_s)
    async with connected(url) as connection:
        await retain(connection, settings, store._moved)


async def segments(url: str) -> int:
    rows = await query(url, "select count(*) from pg_class where relkind = 'r' and relname ~ '^segment_[0-9]+$'")
    return int(rows[0][0])


@in_loop
async def test_old_records_go(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 2, {"retention.ms": "60000"})
        now = time.time_ns() // 1_000_000
        for age_ms in (90_000, 70_000, 10_000, 80_000):  # the last is kept by the one before
            await store.append(made, 0, batch(b"%d" % age_ms, at_ms=now - age_ms))
        await store.append(made, 1, batch(b"old", at_ms=now - 90_000))
        await keep_house(own_url, store)
        assert await values(store, made, offset=2) == [b"10000", b"80000"]
        assert (await read(store, made, 0, 1)).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await store.earliest(made.parts[1]) == await store.latest(made.parts[1]) == 1
        assert (await store.append(made, 1, batch(b"new"))).base_offset == 1


@in_loop
async def test_records_without_a_time_are_as_old_as_their_segment(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {"retention.ms": "1"})
        await store.append(made, 0, batch(b"a", at_ms=-1))
        await keep_house(own_url, store)
        assert await values(store, made) == [b"a"]
        await keep_house(own_url, store, least_s=0.0)
        await asyncio.sleep(0.005)
        await keep_house(own_url, store)
        assert await store.earliest(made.parts[0]) == 1


@pytest.mark.parametrize("keep_ms", [0, 2**63 - 1], ids=["nothing", "almost for ever"])
@in_loop
async def test_the_least_and_the_greatest_retention(own_url: str, topic: str, keep_ms: int) -> None:
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {"retention.ms": str(keep_ms)})
        await store.append(made, 0, batch(b"a"))
        await keep_house(own_url, store, segment_bytes=1)
        later_ms = time.time_ns() // 1_000_000 + 60_000  # of this moment: the module may have been read long ago
        await store.append(made, 0, batch(b"b", at_ms=later_ms))
        await keep_house(own_url, store, segment_bytes=1)
        assert await store.earliest(made.parts[0]) == (0 if keep_ms else 1)


@in_loop
async def test_too_many_bytes_go(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        data = batch(bytes(100))
        configs = {"retention.bytes": str(len(data) * 3), "retention.ms": "-1"}
        made = await store.catalog.create(topic, 1, configs)
        for _ in range(10):
            await store.append(made, 0, data)
        await keep_house(own_url, store)
        assert await store.earliest(made.parts[0]) == 7
        assert await store.sizes([made]) == {made.parts[0]: len(data) * 3}


@in_loop
async def test_segments_and_size_stay_flat_under_load(own_url: str, topic: str) -> None:
    """Thirty times what is kept is written, while somebody reads; tables come and go."""
    async with opened(own_url) as store:
        data = batch(*(bytes(200),) * 20)
        made = await store.catalog.create(topic, 2, {"retention.bytes": str(len(data) * 10), "retention.ms": "3600000"})
        sizes: list[int] = []
        counts: list[int] = []
        end = 0
        for _ in range(30):
            await asyncio.gather(*(store.append(made, turn % 2, data) for turn in range(20)))
            await keep_house(own_url, store, segment_bytes=64 << 10)
            counts.append(await segments(own_url))
            ((size,),) = await query(
                own_url, "select sum(pg_total_relation_size(relid)) from pg_partition_tree('kafka.batches')"
            )
            sizes.append(int(size))
            start = await store.earliest(made.parts[0])
            store.tails.doubt()
            found = records(await read(store, made, 0, start, max_bytes=1 << 24))
            assert [record.offset for record in found] == list(range(start, await store.latest(made.parts[0])))
            assert found[-1].offset >= end
            end = found[-1].offset
        assert max(counts[5:]) <= 5
        assert max(sizes[15:]) <= max(sizes[5:15]) * 1.5
        assert await query(own_url, "select count(*) from kafka.segments") == [(counts[-1],)]


@in_loop
async def test_one_quiet_partition_does_not_keep_the_space_of_a_busy_one(own_url: str, topic: str) -> None:
    """They share a segment, of which only the record of the quiet one is alive in the end."""
    async with opened(own_url, NO_CACHE) as store:
        made = await store.catalog.create(topic, 2, {"retention.bytes": "5000", "retention.ms": "-1"})
        await store.append(made, 0, batch(b"quiet"))
        data = batch(*(bytes(1000),) * 20)
        await asyncio.gather(*(store.append(made, 1, data) for _ in range(50)))
        size = "select pg_total_relation_size('kafka.segment_1')"
        assert await query(own_url, size) > [(1_000_000,)]
        await keep_house(own_url, store, segment_bytes=1)
        assert await query(own_url, size) < [(100_000,)]
        assert await values(store, made, 0) == [b"quiet"]
        assert await query(own_url, "select count(*) from kafka.batches") == [(2,)]


@in_loop
async def test_deleted_topics_leave_nothing(own_url: str, topic: str) -> None:
    """Neither in segments that are dropped nor in those that stay."""
    async with opened(own_url) as store:
        for name, configs in (("a", {}), ("b", {"retention.ms": "-1"}), ("c", {"cleanup.policy": "compact"})):
            made = await store.catalog.create(topic + name, 1, configs)
            await store.append(made, 0, batch(b"v"))
            await store.catalog.delete(made.uuid)
        await keep_house(own_url, store, least_s=0.0)
        await keep_house(own_url, store, least_s=0.0)
        assert await query(own_url, "select count(*) from kafka.spans") == [(0,)]
        ((left,),) = await query(own_url, "select count(*) from kafka.batches as b join kafka.segments as s on"
                                 " s.id = b.segment_id join kafka.classes as c on c.id = class_id"
                                 " where retention_ms is null")  # fmt: skip
        assert left == 0


@in_loop
async def test_a_reader_in_a_long_transaction_is_not_disturbed(own_url: str, topic: str) -> None:
    """Its segment is detached when it is done; meanwhile everybody else goes on."""
    async with opened(own_url) as store, connected(own_url) as reader:
        made = await store.catalog.create(topic, 1, {"retention.ms": "3600000"})
        await store.append(made, 0, batch(b"a"))
        await store.delete_records(made, 0, -1)
        async with reader.transaction():
            await reader.execute(b"select count(*) from kafka.messages")
            dropping = asyncio.create_task(keep_house(own_url, store, segment_bytes=1))
            await until(lambda: _waits_to_detach(own_url))
            assert (await store.append(made, 0, batch(b"b"))).base_offset == 1
            assert await values(store, made, offset=1) == [b"b"]
            await store.catalog.create(topic + "x", 1, {"retention.ms": "55555"})  # a class, and a segment, of its own
            await reader.execute(b"select count(*) from kafka.messages")
            assert not dropping.done()
        await dropping
        assert await segments(own_url) == 2


async def _waits_to_detach(url: str) -> bool:
    return bool(await query(url, "select pid from pg_stat_activity where query ilike '%%detach partition%%'"
                            " and wait_event_type = 'Lock' and pid <> pg_backend_pid()"))  # fmt: skip


# Compaction


async def compacted(url: str, max_keys: int = 1000) -> None:
    """Two rounds: what is new is only marked by the first."""
    async with connected(url) as connection:
        await compact(connection, max_keys)
        await compact(connection, max_keys)


async def everything(store: Store, topic: Topic) -> list[Record]:
    found: list[Record] = []
    offset = 0
    while got := [record for record in records(await read(store, topic, 0, offset)) if record.offset >= offset]:
        found += got
        offset = got[-1].offset + 1
    return found


async def write(
    store: Store, topic: Topic, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, at_ms: int = 0
) -> None:
    now = at_ms or time.time_ns() // 1_000_000
    await store.append(
        topic, 0, encode_batch([Record(index, now, *pair) for index, pair in enumerate(pairs)], codec=codec)
    )


@pytest.mark.parametrize("max_keys", [1000, 3], ids=["one round", "several rounds"])
@in_loop
async def test_the_last_of_each_key_stays(own_url: str, topic: str, max_keys: int) -> None:
    async with opened(own_url, NO_CACHE) as store:
        made = await store.catalog.create(topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        codecs = list(Codec)
        written: list[tuple[bytes, bytes]] = []
        for turn in range(25):
            pairs = [(b"key %d" % (turn * step % 7), b"%d %d" % (turn, step)) for step in range(1, 5)]
            await write(store, made, *pairs, codec=codecs[turn % 5])
            written += pairs
        before = await everything(store, made)
        for _ in range(1 if max_keys > 3 else 30):
            await compacted(own_url, max_keys)
        after = await everything(store, made)
        last = {record.key: record.offset for record in before}
        assert [record for record in before if last[record.key] == record.offset] == after
        assert len(after) == 7
        assert (await read(store, made, 0, 0)).high_watermark == 100
        seen = await query(own_url, 'select "offset", global_offset, key, value from kafka.messages order by 1')
        assert seen == [(record.offset, record.offset, record.key, record.value) for record in after]
        assert await store.sizes([made]) == {made.parts[0]: (await read(store, made)).size}
        for record in after:
            assert records(await read(store, made, 0, record.offset))[0].offset <= record.offset


@in_loop
async def test_batches_keep_their_last_offset(own_url: str, topic: str) -> None:
    """So that a reader who stands at the end of a thinned batch goes on behind it."""
    async with opened(own_url, NO_CACHE) as store:
        made = await store.catalog.create(topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        await write(store, made, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
        await write(store, made, (b"c", b"2"))
        await compacted(own_url)
        found = await read(store, made)
        header = read_batch_header(b"".join(found.buffers[:2]))
        assert (header.base_offset, header.last_offset, header.count) == (1, 3, 2)
        assert [record.offset for record in await everything(store, made)] == [1, 2, 4]
        found_at = await store.at_time(made.parts[0], 0)
        assert found_at is not None
        assert found_at.offset == 1


@in_loop
async def test_what_came_since_the_last_round_is_left_alone(own_url: str, topic: str) -> None:
    async with opened(own_url, NO_CACHE) as store, connected(own_url) as connection:
        made = await store.catalog.create(topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        await write(store, made, (b"a", b"1"), (b"a", b"2"))
        await compact(connection, 1000)
        await write(store, made, (b"a", b"3"), (b"a", b"4"))
        assert len(await everything(store, made)) == 4
        await compact(connection, 1000)
        assert [record.value for record in await everything(store, made)] == [b"2", b"3", b"4"]
        await compact(connection, 1000)
        assert [record.value for record in await everything(store, made)] == [b"4"]


@in_loop
async def test_tombstones_go_when_their_time_is_over(own_url: str, topic: str) -> None:
    async with opened(own_url, NO_CACHE) as store:
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "60000"}
        made = await store.catalog.create(topic, 1, configs)
        now = time.time_ns() // 1_000_000
        await write(store, made, (b"old", b"1"), (b"old", None), at_ms=now - 61_000)
        await write(store, made, (b"young", b"1"), (b"young", None))
        await compacted(own_url)
        assert [record.key for record in await everything(store, made)] == [b"old", b"young"]
        await write(store, made, (b"other", b"1"))
        await compacted(own_url)
        assert [record.key for record in await everything(store, made)] == [b"young", b"other"]
        assert (await store.append(made, 0, batch(b"x"))).base_offset == 5


@in_loop
async def test_little_news_is_not_worth_a_round(own_url: str, topic: str) -> None:
    async with opened(own_url, NO_CACHE) as store:
        made = await store.catalog.create(topic, 1, {"cleanup.policy": "compact"})
        await write(store, made, *((b"%d" % turn, bytes(50)) for turn in range(50)))
        await compacted(own_url)
        await write(store, made, (b"1", b"again"))
        await compacted(own_url)
        assert len(await everything(store, made)) == 51


@in_loop
async def test_an_emptied_segment_is_dropped(own_url: str, topic: str) -> None:
    async with opened(own_url, NO_CACHE) as store:
        made = await store.catalog.create(topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        await write(store, made, (b"a", b"1"))
        await keep_house(own_url, store, segment_bytes=1)
        await write(store, made, (b"a", b"2"))
        await compacted(own_url)
        await keep_house(own_url, store)
        assert await segments(own_url) == 1
        assert [record.offset for record in await everything(store, made)] == [1]


@pytest.mark.parametrize("is_altered", [False, True], ids=["made so", "altered"])
@in_loop
async def test_what_is_compacted_away_never_comes_back(own_url: str, topic: str, is_altered: bool) -> None:
    """Neither from the memory of the gateway that wrote it, nor from any other's."""
    compact_it = {"cleanup.policy": "compact"}
    async with opened(own_url) as store, opened(own_url) as other:
        made = await store.catalog.create(topic, 1, {} if is_altered else compact_it)
        await write(store, made, (b"a", b"1"), (b"b", b"1"))
        await write(store, made, (b"a", b"2"))
        assert len(await everything(store, made)) == len(await everything(other, made)) == 3
        if is_altered:
            made = await store.catalog.alter_configs(topic, compact_it, ())
            await other.catalog.refresh()
        await write(store, made, (b"c", b"1"))
        await compacted(own_url)
        in_sql = await query(own_url, 'select "offset" from kafka.messages order by 1')
        assert in_sql == [(1,), (2,), (3,)]
        for each in (store, other):
            assert [(record.offset,) for record in await everything(each, made)] == in_sql


# The inbox


@in_loop
async def test_sql_messages_reach_the_log_once_and_in_order(own_url: str, topic: str) -> None:
    """With two gateways, of which one drains; a reader is woken."""
    quick = replace(QUIET, inbox_interval_s=0.01)
    async with opened(own_url, quick) as store, opened(own_url, quick) as other, connected(own_url) as application:
        made = await store.catalog.create(topic, 4, {})
        await other.catalog.refresh()
        for turn in range(20):
            async with application.transaction(force_rollback=turn % 5 == 4):
                for step in range(5):
                    await application.execute(
                        b"select kafka.produce(%s, %s::text, %s::text)", [topic, f"key {step}", f"{turn} {step}"]
                    )

        async def is_empty() -> bool:
            return await query(own_url, "select count(*) from kafka.inbox") == [(0,)]

        await until(is_empty)
        for step in range(5):
            (hashed,) = murmur2(_column(b"key %d" % step))
            found = await values(other, made, (int(hashed) & 0x7FFFFFFF) % 4)
            mine = [value for value in found if value is not None and value.endswith(b" %d" % step)]
            assert mine == [b"%d %d" % (turn, step) for turn in range(20) if turn % 5 != 4]


def _column(value: bytes) -> object:
    import pyarrow as pa

    return pa.array([value], pa.binary())


@in_loop
async def test_headers_partitions_and_turns(own_url: str, topic: str) -> None:
    async with opened(own_url, replace(QUIET, inbox_interval_s=0.01)) as store:
        made = await store.catalog.create(topic, 3, {})
        headers = '[["a", "text"], ["a", null], ["b", {"base64": "AP8="}]]'
        await query(own_url, "select kafka.produce(%s, null::bytea, '\\x01'::bytea, %s, 2)", topic, headers)
        await query(own_url, "select kafka.produce(%s, null::text, i::text) from generate_series(1, 6) as i", topic)

        async def is_done() -> bool:
            return await query(own_url, "select count(*) from kafka.messages") == [(7,)]

        await until(is_done)
        (first, *_) = records(await read(store, made, 2))
        assert first.headers == (("a", b"text"), ("a", None), ("b", b"\0\xff"))
        assert first.value == b"\1"
        assert [len(await values(store, made, index)) for index in range(3)] == [2, 2, 3]


@in_loop
async def test_messages_for_a_deleted_topic_hold_up_nobody(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        other = await store.catalog.create(topic + "x", 1, {})
        await query(own_url, "select kafka.produce(%s, 'k', 'v')", topic)
        await query(own_url, "select kafka.produce(%s, 'k', 'w')", other.name)
        await store.catalog.delete(made.uuid)
    async with opened(own_url, replace(QUIET, inbox_interval_s=0.01)) as store:

        async def is_done() -> bool:
            return await values(store, other) == [b"w"]

        await until(is_done)
        assert await query(own_url, "select count(*) from kafka.inbox") == [(0,)]
