"""The consumer beside a real database: rows and changes joined exactly, resumed, and begun anew when they must."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zstandard
from nats.js.api import StreamConfig

from headgate.consume import CaughtUp, Changes, Consumer, SnapshotEnd, SnapshotRows, Step
from headgate.model import ConfigError, ConnectError
from headgate.wire.compress import Dictionary
from headgate.wire.envelope import MessagePackEncoder, events
from tests.cdc import read_types
from tests.snapshots import Origin, fresh_database, shared_stack

TABLES = """
    create table users (id int primary key, name text);
    create table orders (id int primary key, note text);
    insert into users select i, 'user ' || i from generate_series(1, 7) i;
    insert into orders values (1, 'first');
"""


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Origin]:
    with fresh_database() as database:
        origin = await Origin.open(database, options.pop("tables", TABLES), **options)
        try:
            yield origin
        finally:
            await origin.close()


class Copy:
    """What a consumer says, folded into rows by key."""

    def __init__(self, position: dict[str, Any] | None = None) -> None:
        self.tables: dict[str, dict[int, Any]] = {}
        self.position = position
        self.operations: list[str] = []
        self.snapshots: list[str] = []

    def take(self, step: Step, consumer: Consumer) -> None:
        if isinstance(step, SnapshotRows):
            self.tables.setdefault(step.schema.table, {}).update({row["id"]: row for row in step.rows})
        elif isinstance(step, SnapshotEnd):
            self.snapshots.append(step.schema.table)
            self.position = consumer.position()
        elif isinstance(step, Changes):
            for change in step.changes:
                self.operations.append(f"{change.operation} {change.table}")
                rows = self.tables.setdefault(str(change.table), {})
                if change.operation == "DELETE":
                    del rows[change.key["id"]]
                elif change.operation == "INSERT":
                    assert change.data["id"] not in rows, "a repetition"
                    rows[change.data["id"]] = change.data
                elif change.operation == "UPDATE":
                    rows[change.key["id"]] |= change.data
            if step.ends:
                self.position = consumer.position()

    async def read(self, origin: Origin, tables: Any = ("users", "orders"), **options: Any) -> Copy:
        """Until nothing more is there."""
        async with asyncio.timeout(30):
            async with Consumer(origin.database.nats_url, tables, position=self.position, **options) as consumer:
                async for step in consumer.steps():
                    self.take(step, consumer)
                    if isinstance(step, CaughtUp):
                        self.position = consumer.position()
                        return self
        raise AssertionError


def truth(origin: Origin, table: str) -> dict[int, Any]:
    rows = origin.sql(f"select id, to_json(t) from {table} t")
    return dict(rows)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(within_time())


@pytest.mark.parametrize("method", ["export", "filter"])
@pytest.mark.parametrize("is_json", [False, True])
def test_rows_then_changes_each_once(method: str, is_json: bool) -> None:
    async def test() -> None:
        async with opened(method=method, is_json=is_json) as origin:
            # One that is published only after it; and one that is open while it is taken, for which an export waits.
            late = origin.database.connect()
            late.execute("begin")
            if method == "filter":
                late.execute("insert into users values (100, 'late')")
            origin.sql("insert into users values (50, 'in the rows, not yet in the stream')")
            copy = Copy()
            async with Consumer(origin.database.nats_url, ["users", "orders"]) as consumer:
                seen = 0
                async for step in consumer.steps():
                    copy.take(step, consumer)
                    if isinstance(step, SnapshotEnd):
                        seen += 1
                    if seen == 2 and not copy.operations:
                        if method == "export":
                            late.execute("insert into users values (100, 'late')")
                        late.execute("commit")
                        origin.sql("update users set name = 'changed' where id = 100; delete from orders")
                        await origin.pump()
                        seen = 3
                    if isinstance(step, CaughtUp) and copy.operations:
                        break
            late.close()
            assert copy.tables["users"] == truth(origin, "users")
            assert copy.tables["orders"] == truth(origin, "orders") == {}
            assert copy.operations == ["INSERT users", "UPDATE users", "DELETE orders"]

    run(test)


def test_goes_on_where_it_was_and_takes_no_second_snapshot() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin)
            assert copy.snapshots == ["users", "orders"]
            origin.sql("insert into users values (8, 'eight'); update orders set note = 'new'")
            await origin.pump()
            await copy.read(origin)
            await copy.read(origin)  # twice: nothing comes again
            assert copy.snapshots == ["users", "orders"]
            assert copy.tables["users"] == truth(origin, "users")
            assert copy.operations == ["INSERT users", "UPDATE orders"]
            assert origin.requests == ["users", "orders"]

    run(test)


def test_a_late_joiner_uses_the_snapshot_that_is_there() -> None:
    async def test() -> None:
        async with opened() as origin:
            await Copy().read(origin)
            origin.sql("insert into users values (8, 'eight')")
            await origin.pump()
            late = await Copy().read(origin)
            assert late.tables["users"] == truth(origin, "users")
            assert late.operations == ["INSERT users"]
            assert origin.requests == ["users", "orders"]

    run(test)


def test_a_table_that_joins_later_does_not_repeat_the_others() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, ["users"])
            await Copy().read(origin, ["orders"])  # leaves a snapshot that lies behind what users has by then
            origin.sql("insert into users values (8, 'eight'); insert into orders values (2, 'second')")
            await origin.pump()
            await copy.read(origin, ["users"])
            await copy.read(origin, ["users", "orders"])
            assert copy.operations == ["INSERT users", "INSERT orders"]
            assert copy.tables["users"] == truth(origin, "users")
            assert copy.tables["orders"] == truth(origin, "orders")

    run(test)


def test_purged_chunks_lead_to_another_snapshot() -> None:
    async def test() -> None:
        async with opened() as origin:
            await Copy().read(origin, ["users"])
            await origin.jetstream.purge_stream("INIT", subject="init.snap.users.*.1")
            copy = await Copy().read(origin, ["users"])
            assert copy.tables["users"] == truth(origin, "users")
            assert origin.requests == ["users", "users"]

    run(test)


def test_a_changed_chunk_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with opened() as origin:
            await Copy().read(origin, ["users"])
            found = await origin.jetstream.get_last_msg("INIT", "init.snap.users.s0000000000001.1")
            await origin.jetstream.purge_stream("INIT", subject=found.subject)
            await origin.jetstream.publish(found.subject, found.data.replace(b"user 4", b"forged"))
            with caplog.at_level(logging.WARNING):
                copy = await Copy().read(origin, ["users"])
            assert "is broken" in caplog.text
            assert copy.tables["users"] == truth(origin, "users")

    run(test)


def test_a_stream_that_lost_what_is_needed_leads_to_another_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, ["users"])
            origin.sql("insert into users values (8, 'eight')")
            origin.sql("insert into users values (9, 'nine')")
            await origin.pump()
            await origin.jetstream.purge_stream("CDC")
            with caplog.at_level(logging.WARNING):
                await copy.read(origin, ["users"])
            assert "taking new snapshots" in caplog.text
            assert copy.snapshots == ["users", "users"]
            assert copy.tables["users"] == truth(origin, "users")

    run(test)


def test_another_stream_of_the_same_name_is_noticed() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, ["users"])
            origin.sql("insert into users values (8, 'eight')")
            await origin.pump()
            await copy.read(origin, ["users"])
            await origin.jetstream.delete_stream("CDC")
            await origin.jetstream.add_stream(StreamConfig(name="CDC", subjects=["cdc.>"]))
            origin.sql("insert into users values (9, 'nine')")
            await origin.pump()
            await copy.read(origin, ["users"])
            assert copy.snapshots == ["users", "users"]
            assert copy.tables["users"] == truth(origin, "users")

    run(test)


def test_transactions_are_whole_although_other_tables_end_them() -> None:
    async def test() -> None:
        async with opened() as origin:
            origin.sql("begin; insert into users values (8, 'a'); insert into orders values (8, 'b'); commit")
            origin.sql("begin; insert into users values (9, 'a'); insert into orders values (9, 'b'); commit")
            async with asyncio.timeout(20), Consumer(origin.database.nats_url, ["users"]) as consumer:
                await origin.pump()
                await origin.jetstream.purge_stream("INIT")
                found = []
                async for transaction in consumer.transactions():
                    if transaction.xid is None:
                        if transaction.changes[-1].operation == "SNAPSHOT_END":
                            origin.sql(
                                "begin; insert into users values (10, 'a'), (11, 'a');"
                                "insert into orders values (10, ''); commit"
                            )
                            await origin.pump()
                        continue
                    found.append([change.data["id"] for change in transaction.changes])
                    if len(found) == 1:
                        break
            assert found == [[10, 11]]

    run(test)


def test_new_shapes_and_new_tables_are_followed() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, "*")
            origin.sql("alter table users add email text; insert into users values (8, 'eight', 'e@x')")
            await origin.pump()
            origin.sql("create table added (id int primary key); insert into added values (1)")
            await origin.pump()
            await copy.read(origin, "*")
            assert copy.operations == ["SCHEMA users", "INSERT users"]
            assert copy.tables["users"][8] == {"id": 8, "name": "eight", "email": "e@x"}
            assert copy.tables["added"] == {1: {"id": 1}}
            assert copy.snapshots[-1] == "added"

    run(test)


def test_parts_and_compressed_parts_are_joined() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, ["users"])
            origin.sql("insert into users values (8, repeat('x', 4000))")
            [transaction] = origin._transactions()
            [event] = events(transaction)
            payload = MessagePackEncoder(7, read_types(origin.connection)).encode(event)
            subject, name = "cdc.public.users.insert", f"7-{event.position}"
            samples: list[bytes | bytearray | memoryview] = [
                b'{"id": %d, "name": "%s"}' % (i, b"user number %d " % i * 20) for i in range(2000)
            ]
            dictionary = Dictionary.of(zstandard.train_dictionary(4096, samples).as_bytes())
            await origin.jetstream.add_stream(StreamConfig(name="KV_dictionaries", subjects=["$KV.dictionaries.>"]))
            try:
                await origin.jetstream.publish(f"$KV.dictionaries.{dictionary.id}", dictionary.data)
                frame = zstandard.ZstdCompressor(
                    dict_data=zstandard.ZstdCompressionDict(dictionary.data), write_checksum=False
                ).compress(payload[:2000])
                await origin.publish(
                    subject, frame, f"{name}.000001",
                    **{"Headgate-Chunk": "1/2", "Headgate-Encoding": "zstd", "Headgate-Dictionary": dictionary.id},
                )  # fmt: skip
                await origin.publish(subject, payload[2000:], f"{name}.000002", **{"Headgate-Chunk": "2/2"})
                await copy.read(origin, ["users"])
            finally:
                await origin.jetstream.delete_stream("KV_dictionaries")
            assert copy.tables["users"][8]["name"] == "x" * 4000

    run(test)


def test_a_large_transaction_comes_in_parts_and_counts_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.consume.follow._MAX_PART", 500)

    async def test() -> None:
        async with opened() as origin:
            copy = await Copy().read(origin, ["users"])
            before = copy.position
            assert before is not None
            origin.sql("insert into users select i, '' from generate_series(1000, 1700) i")
            await origin.pump()
            async with asyncio.timeout(60), Consumer(origin.database.nats_url, ["users"], position=before) as consumer:
                sizes = []
                async for step in consumer.steps():
                    if isinstance(step, Changes):
                        sizes.append(len(step.changes))
                        assert (consumer.position()["sequence"] == before["sequence"]) is not step.ends
                        if step.ends:
                            break
            assert sizes == [500, 201]

    run(test)


def test_nats_restarts_and_nothing_is_lost_or_repeated() -> None:
    async def test() -> None:
        async with opened() as origin:
            copy = Copy()
            server = shared_stack().nats
            assert server is not None
            async with asyncio.timeout(60), Consumer(origin.database.nats_url, ["users"]) as consumer:
                restarted = False
                async for step in consumer.steps():
                    copy.take(step, consumer)
                    if isinstance(step, CaughtUp) and not restarted:
                        restarted = True
                        await asyncio.to_thread(server.stop)
                        await asyncio.to_thread(server.start)
                        origin.sql("insert into users values (8, 'eight')")
                        await origin.pump()
                    elif copy.operations:
                        break
            assert copy.operations == ["INSERT users"]

    run(test)


def test_mistakes_are_explained() -> None:
    async def test() -> None:
        async with opened() as origin:
            with pytest.raises(ConfigError, match="has no table ghosts"):
                await Copy().read(origin, ["ghosts"])
            await origin.forget_streams()
            with pytest.raises(ConfigError, match="there is no stream CDC"):
                await Copy().read(origin, ["users"])

    async def nobody() -> None:
        with pytest.raises(ConnectError, match="cannot reach NATS"):
            async with Consumer("nats://127.0.0.1:1", ["users"]):
                pass

    run(test)
    run(nobody)
