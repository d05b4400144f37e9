"""Stores, batches and answers, in as few words as tests like."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import psycopg

from headgate.gateway.store import Fetched, Store, StoreSettings, Topic, Want
from headgate.wire.kafka import Record, encode_batch, read_records, split_batches

P = ParamSpec("P")
NOW = time.time_ns() // 1_000_000
# The housekeepers stay away, unless a test calls them.
QUIET = StoreSettings(
    pool_size=4, housekeeping_interval_s=1000, compaction_interval_s=1000, poll_interval_s=0.2, inbox_interval_s=1000
)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in an event loop of its own, for a minute at most."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def opened(url: str, settings: StoreSettings = QUIET) -> AsyncIterator[Store]:
    store = await Store.open(url, settings=settings)
    try:
        yield store
    finally:
        await store.close()


def batch(*values: bytes | None, key: bytes | None = b"k", at_ms: int = NOW, **options: Any) -> bytes:
    return encode_batch([Record(index, at_ms, key, value) for index, value in enumerate(values)], **options)


def sequenced(producer: int, sequence: int, value: bytes = b"v") -> bytes:
    return batch(value, producer_id=producer, producer_epoch=0, base_sequence=sequence)


def records(fetched: Fetched) -> list[Record]:
    data = b"".join(fetched.buffers)
    return [record for _, each in split_batches(data) for record in read_records(each)]


async def read(store: Store, topic: Topic, index: int = 0, offset: int = 0, max_bytes: int = 1 << 20) -> Fetched:
    """What is there now."""
    want = Want(topic.parts[index], offset, max_bytes)
    (fetched,) = await store.fetch([want], max_bytes=max_bytes, min_bytes=0, max_wait_s=0)
    return fetched


async def values(store: Store, topic: Topic, index: int = 0, offset: int = 0) -> list[bytes | None]:
    """Everything from an offset on, by as many fetches as it takes."""
    found: list[bytes | None] = []
    while True:
        got = [record for record in records(await read(store, topic, index, offset)) if record.offset >= offset]
        if not got:
            return found
        found += [record.value for record in got]
        offset = got[-1].offset + 1


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again; the test's own limit ends this."""
    while not await check():  # noqa: ASYNC110  what is awaited happens in PostgreSQL
        await asyncio.sleep(0.01)


async def query(url: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), arguments or None)
        return await cursor.fetchall() if cursor.description else []
