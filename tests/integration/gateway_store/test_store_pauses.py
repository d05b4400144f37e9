"""A PostgreSQL that pauses, at any moment of an append: the writer gets over it, and nothing is written twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from headgate.gateway.store import Store
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused
from tests.integration.gateway_store.stores import QUIET, batch, in_loop, opened, query, sequenced, until, values

HASTY = replace(QUIET, append_timeout_s=0.5)
LARGE = {"max.message.bytes": str(64 << 20)}
BIG = os.urandom(8 << 20)  # more than the buffers between two processes hold


@asynccontextmanager
async def paused(url: str, application: str) -> AsyncIterator[None]:
    """The server processes behind the connections of a name do nothing."""
    rows = await query(url, "select pid from pg_stat_activity where application_name = %s", application)
    assert rows
    for (pid,) in rows:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for (pid,) in rows:
            os.kill(pid, signal.SIGCONT)


async def refused(store: Store, topic: object, data: bytes) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        await store.append(topic, 0, data)  # type: ignore[arg-type]
    return caught.value.code


@pytest.mark.parametrize("value", [b"small", BIG], ids=["while it waits", "while it sends"])
@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
@in_loop
async def test_a_pause_does_not_wedge_the_writer(own_url: str, topic: str, value: bytes, is_idempotent: bool) -> None:
    async with opened(own_url, HASTY) as store:
        made = await store.catalog.create(topic, 1, LARGE)
        data = sequenced(1, 0, value) if is_idempotent else batch(value)
        async with paused(own_url, "headgate gateway writer"):
            assert await refused(store, made, data) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: _append(store, made, sequenced(2, 0, b"after")))
        found = await values(store, made)
    assert found.count(b"after") == 1
    # Whether the first was written is not known to its producer, but it is not there twice.
    assert found.count(value) <= 1


async def _append(store: Store, topic: object, data: bytes) -> bool:
    try:
        await store.append(topic, 0, data)  # type: ignore[arg-type]
    except Refused:
        return False
    return True


@in_loop
async def test_an_append_that_was_given_up_is_not_written_later(own_url: str, topic: str) -> None:
    """Its producer was told to try again, and has no number by which a second one would be recognised."""
    async with opened(own_url, HASTY) as store:
        made = await store.catalog.create(topic, 1, {})
        async with await psycopg.AsyncConnection.connect(own_url) as holder:
            await holder.execute("select from kafka.head for update")
            assert await refused(store, made, batch(b"given up")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            await holder.rollback()
        await store.append(made, 0, batch(b"again"))
        assert await values(store, made) == [b"again"]


@in_loop
async def test_a_request_whose_time_is_over_is_not_written_later(own_url: str, topic: str) -> None:
    """It waited behind another, and was cancelled before its turn came."""
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        async with await psycopg.AsyncConnection.connect(own_url) as holder:
            await holder.execute("select from kafka.head for update")
            first = asyncio.create_task(store.append(made, 0, batch(b"first")))
            await until(lambda: _is_waiting(own_url))
            late = asyncio.create_task(store.append(made, 0, batch(b"late")))
            await asyncio.sleep(0)
            late.cancel()
            await holder.rollback()
        await first
        await store.append(made, 0, batch(b"last"))
        assert await values(store, made) == [b"first", b"last"]


async def _is_waiting(url: str) -> bool:
    waiting = "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    return bool(await query(url, waiting, "headgate gateway writer"))


@in_loop
async def test_a_large_append_has_more_time(own_url: str, topic: str) -> None:
    """What takes long because it is large is not given up: a second attempt would take as long."""
    settings = replace(QUIET, append_timeout_s=0.2, append_bytes_per_s=1 << 20)
    async with opened(own_url, settings) as store:
        made = await store.catalog.create(topic, 1, LARGE)
        async with await psycopg.AsyncConnection.connect(own_url) as holder:
            await holder.execute("select from kafka.head for update")
            large = asyncio.create_task(store.append(made, 0, batch(BIG)))
            await until(lambda: _is_waiting(own_url))
            await asyncio.sleep(4 * settings.append_timeout_s)
            assert not large.done()
            await holder.rollback()
        await large
