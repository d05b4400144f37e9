"""Connections that break while appends are under way: no acknowledged batch is lost, none is written twice."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from headgate.gateway.store import Store, Topic
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused
from tests.integration.gateway_store.stores import QUIET, batch, in_loop, opened, query, sequenced, until, values

RETRIABLE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}


async def terminate(url: str, name: str) -> int:
    """End all backends of a name, whatever they do at this moment."""
    return len(
        await query(
            url,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = %s",
            name,
        )
    )


async def append_often(store: Store, topic: Topic, name: int, ends: asyncio.Event, done: list[bytes]) -> None:
    """Note which values were acknowledged."""
    turn = 0
    while not ends.is_set():
        value = b"%d %d" % (name, turn)
        turn += 1
        try:
            await store.append(topic, name % 2, batch(value))
            done.append(value)
        except Refused as refused:
            if refused.code not in RETRIABLE:
                raise


@in_loop
async def test_no_false_success(own_url: str, topic: str) -> None:
    """Producers without sequences: what is acknowledged is there, once; what is not may be there."""
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 2, {})
        ends = asyncio.Event()
        acknowledged: list[bytes] = []
        workers = [asyncio.create_task(append_often(store, made, name, ends, acknowledged)) for name in range(6)]
        ended = 0
        while ended < 8:
            await asyncio.sleep(0.02)  # so that the blows fall at any moment
            ended += await terminate(own_url, "headgate gateway writer")

        async def are_many() -> bool:
            return len(acknowledged) > 50

        await until(are_many)
        ends.set()
        await asyncio.gather(*workers)
        found = Counter(await values(store, made, 0) + await values(store, made, 1))
        assert found.most_common(1)[0][1] == 1
        assert set(acknowledged) <= set(found)


@in_loop
async def test_idempotent_producers_notice_nothing(own_url: str, topic: str) -> None:
    async with opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        ends = asyncio.Event()

        async def produce(producer: int) -> int:
            sequence = 0
            while not ends.is_set():
                await store.append(made, 0, sequenced(producer, sequence, b"%d %d" % (producer, sequence)))
                sequence += 1
            return sequence

        workers = [asyncio.create_task(produce(producer)) for producer in range(4)]
        ended = 0
        while ended < 6:
            await asyncio.sleep(0.02)
            ended += await terminate(own_url, "headgate gateway writer")
        ends.set()
        counts = await asyncio.gather(*workers)
        expected = Counter(b"%d %d" % (producer, turn) for producer in range(4) for turn in range(counts[producer]))
        assert Counter(await values(store, made)) == expected


class Wire:
    """A proxy to PostgreSQL that can cut the line after the server has had a statement, before its answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.is_cutting = False
        self.cut = asyncio.Event()
        self.deaf_connections = 0  # of the next ones: how many hear nothing once they are established
        self.deaf_names: Counter[bytes] = Counter()  # the same, of applications
        self._muted: set[asyncio.StreamWriter] = set()
        self._over = asyncio.Event()
        self._names: dict[asyncio.StreamWriter, bytes] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    def mute(self, name: bytes) -> None:
        """From now on nothing that an application's connections say gets through, and nobody is told."""
        found = {writer for writer, startup in self._names.items() if name in startup}
        assert found
        self._muted |= found

    def _is_deaf(self, startup: bytes) -> bool:
        self.deaf_connections -= (any_one := self.deaf_connections > 0)
        names = [name for name, left in self.deaf_names.items() if left > 0 and name + b"\0" in startup]
        self.deaf_names.subtract(names)
        return any_one or bool(names)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._path)
        self._writers |= {writer, up_writer}
        try:
            startup = await reader.read(1 << 16)  # who it is
            self._names[up_writer] = startup
            up_writer.write(startup)
            async with asyncio.TaskGroup() as tasks:
                if not self._is_deaf(startup):  # else what it wants gets lost
                    tasks.create_task(self._pump(reader, up_writer, is_answer=False))
                tasks.create_task(self._pump(up_reader, writer, is_answer=True))
        finally:
            for each in (writer, up_writer):
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(1 << 16):
            if is_answer and self.is_cutting:
                self.is_cutting = False
                self.cut.set()
                break  # PostgreSQL has answered, so it has committed; the answer goes nowhere
            if writer not in self._muted:
                writer.write(data)
                await writer.drain()
        if writer in self._muted:
            await self._over.wait()  # the server is not told that the line is cut, either
        writer.close()

    def close(self) -> None:
        self._over.set()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Wire, str]]:
    info = psycopg.conninfo.conninfo_to_dict(url)
    wire = Wire(os.path.join(str(info["host"]), f".s.PGSQL.{info['port']}"))  # noqa: PTH118  a name, not a path
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield (
            wire,
            psycopg.conninfo.make_conninfo(url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"),
        )
    finally:
        server.close()
        wire.close()


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
@in_loop
async def test_the_answer_to_a_commit_is_lost(own_url: str, topic: str, is_idempotent: bool) -> None:
    async with proxied(own_url) as (wire, url), opened(own_url) as plain:
        made = await plain.catalog.create(topic, 1, {})
        async with opened_writer_through(plain, url):
            for turn in range(3):  # until the statement is prepared, so that the next answer is that of a commit
                await plain.append(made, 0, sequenced(5, turn) if is_idempotent else batch(b"v"))
            wire.is_cutting = True
            second = sequenced(5, 3, b"w") if is_idempotent else batch(b"w")
            if is_idempotent:
                assert (await plain.append(made, 0, second)).base_offset == 3
            else:
                with pytest.raises(Refused) as caught:
                    await plain.append(made, 0, second)
                assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert wire.cut.is_set()
            assert await values(plain, made) == [b"v", b"v", b"v", b"w"]


@asynccontextmanager
async def opened_writer_through(store: Store, url: str) -> AsyncIterator[None]:
    """Let only the writer go another way: all else must go on as before."""
    await store._writer._drop()
    store._writer._url = url
    yield


@in_loop
async def test_a_line_that_is_deaf_from_the_start_is_given_up(
    own_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers who connects, and what is said next gets lost: nobody would ever be told."""
    monkeypatch.setattr("headgate.gateway.store.writer._CONNECT_TIMEOUT_S", 2)
    async with proxied(own_url) as (wire, url), opened(own_url) as store:
        made = await store.catalog.create(topic, 1, {})
        store._writer._url = url
        wire.deaf_connections = 1
        await terminate(own_url, "headgate gateway writer")

        async def is_written() -> bool:
            try:
                await store.append(made, 0, sequenced(1, 0, b"v"))
            except Refused:
                return False
            return True

        await until(is_written)
        assert await values(store, made) == [b"v"]


@pytest.mark.parametrize("part", ["inbox", "retention", "listener", "", "inbox later"])
@in_loop
async def test_a_deaf_line_of_any_part_is_told_and_given_up(own_url: str, topic: str, part: str) -> None:
    """The connection stands, and what is said on it gets lost: from the first word on, or later."""
    name, is_later = part.removesuffix(" later"), part.endswith(" later")
    application = f"headgate gateway {name}".strip().encode()
    told = {"listener": "notifications", "": "catalog"}.get(name, name)
    settings = replace(QUIET, patience_s=0.5, upkeep_patience_s=0.5, inbox_interval_s=0.05, housekeeping_interval_s=0.1)
    async with proxied(own_url) as (wire, url):
        if not is_later and name:
            wire.deaf_names[application] = 1
        async with opened(url, settings) as store:
            await store.catalog.create(topic, 1, {})
            if is_later:
                await until(lambda: _drained(own_url, topic, "before"))
            if is_later or not name:
                wire.mute(application)
                await query(own_url, "select pg_notify('kafka_catalog', '')")
            await until(lambda: _is_true(told in store.health.troubles))
            assert "not answered" in store.health.troubles[told].why
            await until(lambda: _drained(own_url, topic, "after"))
            await until(lambda: _is_true(told not in store.health.troubles))
            assert store.health.failures[told] >= 1


async def _is_true(what: bool) -> bool:
    return what


async def _drained(url: str, topic: str, value: str) -> bool:
    """Whether what SQL writes reaches the log, through the one who has the duty."""
    found = "select 1 from kafka.messages where topic = %s and value = %s"
    if await query(url, found, topic, value.encode()):
        return True
    waiting = await query(url, "select 1 from kafka.inbox")
    if not waiting:
        await query(url, "select kafka.produce(%s, 'k', %s)", topic, value)
    return False


@in_loop
async def test_a_server_that_is_away(own_url: str, topic: str) -> None:
    """Requests are answered in time, and all is well when it comes back."""
    async with opened(own_url, replace(QUIET, append_timeout_s=0.3)) as store:
        made = await store.catalog.create(topic, 1, {})
        with socket.socket() as nobody:
            nobody.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            nobody.bind(("127.0.0.1", 0))
            away = psycopg.conninfo.make_conninfo(own_url, host="127.0.0.1", port=nobody.getsockname()[1])
            async with opened_writer_through(store, away):
                results = await asyncio.gather(
                    *(store.append(made, 0, sequenced(1, n)) for n in range(3)), return_exceptions=True
                )
                assert [each.code for each in results if isinstance(each, Refused)] == [
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                ] * 3
        store._writer._url = own_url
        assert (await store.append(made, 0, sequenced(1, 0))).base_offset == 0


@in_loop
async def test_a_log_that_somebody_holds(own_url: str, topic: str) -> None:
    """Such as an append whose transaction stays open: requests are answered in time."""
    async with opened(own_url, replace(QUIET, append_timeout_s=0.3)) as store:
        made = await store.catalog.create(topic, 1, {})
        async with await psycopg.AsyncConnection.connect(own_url) as holder:
            await holder.execute("select from kafka.head for update")
            for data in (batch(b"v"), sequenced(1, 0)):
                with pytest.raises(Refused) as caught:
                    await store.append(made, 0, data)
                assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            await holder.rollback()
        assert (await store.append(made, 0, sequenced(1, 0, b"w"))).base_offset == 0
        assert await values(store, made) == [b"w"]


@in_loop
async def test_close_writes_what_is_queued(own_url: str, topic: str) -> None:
    async with opened(own_url, replace(QUIET, group_bytes=500)) as store:
        made = await store.catalog.create(topic, 1, {})
        queued = [asyncio.create_task(store.append(made, 0, batch(b"%d" % turn))) for turn in range(50)]
        await asyncio.sleep(0)
    assert [(await each).base_offset for each in queued] == list(range(50))
    assert await query(own_url, "select count(*) from kafka.messages") == [(50,)]


@in_loop
async def test_notifications_come_back(own_url: str, topic: str) -> None:
    """Gateways lose their listening connections, and hear each other again."""
    async with opened(own_url) as store, opened(own_url) as other:
        made = await store.catalog.create(topic, 1, {})
        heard: list[str] = []
        other.on_notify("anything", heard.append)
        await until(lambda: _has(heard, 1))
        await terminate(own_url, "headgate gateway listener")
        await until(lambda: _has(heard, 2))  # an empty payload: anything may have happened
        await query(own_url, "select pg_notify('anything', 'x')")
        await until(lambda: _has(heard, 3))
        assert heard == ["", "", "x"]
        await store.append(made, 0, batch(b"a"))
        await until(lambda: _sees(other, made))


async def _has(heard: list[str], count: int) -> bool:
    return len(heard) >= count


async def _sees(store: Store, topic: Topic) -> bool:
    return await values(store, topic) == [b"a"]
