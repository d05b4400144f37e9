"""What is missing in a stream is noticed: told by a marker, deleted from its midst, or the whole stream made again."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from pathlib import Path
from typing import Any, Literal

import pytest
from nats.js.api import StreamConfig

from headgate.replica import Replica, open_target, stop
from tests.integration.consume.reading import Reader, run, until
from tests.snapshots import Origin, fresh_database
from tests.snapshots.written import Place, Written

Wanted = list[str] | Literal["*"]


def marker(tables: list[list[str]] | None, **fields: Any) -> bytes:
    return json.dumps({"reason": "slot", "tables": tables, **fields}).encode()


@pytest.mark.parametrize("wanted", [["a", "b"], "*"])
def test_a_marker_makes_its_tables_begin_anew(wanted: Wanted, caplog: pytest.LogCaptureFixture) -> None:
    async def test(written: Written) -> None:
        reader = Reader(wanted)
        task = reader.start()
        await reader.caught_up.wait()
        written.requests.clear()
        await written.event(("b", 1), Place(1, 1, 0))
        written.rows["a"] = [{"id": 7, "text": ""}]
        await written.message(Place(2, 1, 0), marker([["public", "a"], ["public", "nowhere"]], lsn="0/1", more=[1]))
        await until(lambda: reader.tables.get("a") == [7])
        await written.event(("a", 8), Place(3, 2, 0))
        await written.event(("b", 2), Place(3, 2, 1))
        await until(lambda: reader.tables.get("b") == [1, 2] and reader.tables.get("a") == [7, 8])
        assert written.requests == ["a"]
        assert "MESSAGE" in reader.operations
        assert "public.a: the bridge tells of a gap (slot); taking a new snapshot" in caplog.text
        await written.message(Place(4, 1, 0), marker(None))
        await until(lambda: len(written.requests) == (4 if wanted == "*" else 3))
        assert not task.done()
        await reader.stop()

    with caplog.at_level(logging.WARNING):
        run(test)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\x00", b"not json", b"[]", b"null", b"7", b'{"tables": 5}', b'{"tables": [["a"]]}',
        b'{"reason": {"a": []}, "tables": [[1, 2]]}', b'{"tables": ' + b"[" * 100_000, b'{"tables": [null]}',
    ],
)  # fmt: skip
def test_a_damaged_marker_stops_nobody_and_concerns_all_tables(content: bytes) -> None:
    async def test(written: Written) -> None:
        readers = [Reader(["a"]), Reader("*")]
        for reader in readers:
            reader.start()
            await reader.caught_up.wait()
        await written.message(Place(1, 1, 0), content)
        await written.event(("a", 1), Place(2, 1, 0))
        await until(lambda: all(reader.snapshots.count("a") == 2 for reader in readers))
        await until(lambda: all(reader.tables["a"] in ([1], []) for reader in readers))
        for reader in readers:
            await reader.stop()

    run(test)


def test_messages_that_are_no_markers_change_nothing() -> None:
    async def test(written: Written) -> None:
        reader = Reader("*")
        reader.start()
        await reader.caught_up.wait()
        written.requests.clear()
        await written.message(Place(1, 1, 0), marker(None), prefix="headgate")
        await written.message(Place(2, 1, 0), b"\x00", prefix="app")
        await written.event(("a", 1), Place(3, 1, 0))
        await until(lambda: reader.tables.get("a") == [1])
        assert written.requests == []
        assert reader.operations == ["INSERT"]
        await reader.stop()

    run(test)


def test_a_snapshot_that_was_begun_before_the_marker_does_not_do() -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a"])
        reader.start()
        await reader.caught_up.wait()
        written.requests.clear()
        old = (await written.jetstream.stream_info("CDC")).state.last_seq
        honest, answers = written.snapshot, []

        async def first_an_old_one(table: str, snapshot_id: str, **fields: Any) -> None:
            answers.append(snapshot_id)
            await honest(table, snapshot_id, **({"cdc_sequence": old} if len(answers) == 1 else {}))

        written.snapshot = first_an_old_one  # type: ignore[method-assign]
        await written.message(Place(1, 1, 0), marker([["public", "a"]]))
        await until(lambda: reader.snapshots == ["a", "a"])
        assert written.requests == ["a", "a"]
        await reader.stop()

    run(test)


def test_a_half_transaction_before_a_marker_is_not_given_out() -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a", "b"])
        reader.start()
        await reader.caught_up.wait()
        await written.event(("a", 1), Place(1, 3, 0))
        await written.message(Place(2, 1, 0), marker([["public", "c"]]))
        await until(lambda: reader.snapshots == ["a", "b", "a"])
        assert reader.transactions == []
        await reader.stop()

    run(test)


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("wanted", [["users"], "*"])
def test_a_marker_that_postgres_has_written(wanted: Wanted, is_json: bool, tmp_path: Path) -> None:
    """The replica of a table whose change was lost is exact again, without a restart."""

    async def test() -> None:
        with fresh_database() as database:
            origin = await Origin.open(database, "create table users (id int primary key)", is_json=is_json)
            target = open_target(f"sqlite:///{tmp_path}/r.db")
            replica = Replica(target, database.nats_url, wanted)
            task = asyncio.create_task(replica.run())
            await until(lambda: replica.progress.caught_up)
            origin.sql("insert into users values (1)")
            origin._transactions()  # read, and sent nowhere
            content = '{"reason": "slot", "tables": [["public", "users"]]}'
            origin.sql(f"select pg_logical_emit_message(true, 'headgate.gap', '{content}')")
            origin.sql("insert into users values (2)")
            await origin.pump()
            connection = sqlite3.connect(tmp_path / "r.db")
            await until(lambda: list(connection.execute("select id from users order by id")) == [(1,), (2,)])
            connection.close()
            await stop(task)
            target.close()
            assert origin.requests == ["users", "users"]
            await origin.close()

    async def within_time() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(within_time())


def test_a_reader_of_many_tables_is_up_to_date_at_once() -> None:
    async def test(written: Written) -> None:
        tables = [f"t{number}" for number in range(250)]
        for table in tables:
            await written.describe(table)
        reader = Reader([*tables, "a"])
        await reader.until_caught_up()
        await written.event(("a", 1), Place(1, 2, 0))
        await written.event(("b", 1), Place(1, 2, 1))  # ends it, and is not read
        await reader.until_caught_up()
        assert reader.tables["a"] == [1]

    run(test)


# Messages that vanish -----------------------------------------------------------------------------------------


async def fill(written: Written, first: int, last: int, tables: str = "ab") -> None:
    """One event for each number, on the tables by turns."""
    for number in range(first, last + 1):
        await written.event((tables[number % len(tables)], number), Place(number, 1, 0))


def whole(written: Written, table: str, upto: int, tables: str = "ab") -> list[int]:
    return [number for number in range(1, upto + 1) if tables[number % len(tables)] == table]


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("wanted", [["a"], ["a", "b"], "*"])
@pytest.mark.parametrize("later", [True, False])
def test_messages_deleted_while_the_consumer_was_away(wanted: Wanted, chained: bool, later: bool) -> None:
    """With and without later messages of the table, and with and without messages that name their predecessors."""

    async def test(written: Written) -> None:
        written.chained = chained
        reader = Reader(wanted)
        await reader.until_caught_up()
        await fill(written, 1, 10)
        await reader.until_caught_up()
        await fill(written, 11, 20)
        await written.jetstream.delete_msg("CDC", 14)  # of table a, and unread
        if later:
            await fill(written, 21, 24)
        last = 24 if later else 20
        for table in "ab":
            written.rows[table] = [{"id": number, "text": ""} for number in whole(written, table, last)]
        written.requests.clear()
        await reader.until_caught_up()
        for table in "ab":
            if reader.wants(table):
                assert sorted(reader.tables[table]) == whole(written, table, last)
        assert "a" in written.requests
        if chained and later:
            assert "b" not in written.requests  # whose later messages show that it lacks nothing
        written.requests.clear()
        await reader.until_caught_up()
        assert written.requests == []  # once is enough

    run(test)


@pytest.mark.parametrize("chained", [True, False])
def test_messages_deleted_after_they_were_read_are_no_loss(chained: bool) -> None:
    async def test(written: Written) -> None:
        written.chained = chained
        reader = Reader(["a"])
        await fill(written, 1, 10)
        await reader.until_caught_up()
        await written.jetstream.purge_stream("CDC", subject="cdc.public.a.>")
        await fill(written, 11, 14)
        written.requests.clear()
        await reader.until_caught_up()
        assert written.requests == []
        assert reader.tables["a"] == [12, 14]

    run(test)


def test_a_purge_while_the_consumer_follows_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async def test(written: Written) -> None:
        written.chained = True
        reader = Reader(["a", "b"])
        await reader.until_caught_up()
        await fill(written, 2, 7)
        await written.jetstream.purge_stream("CDC", subject="cdc.public.b.>")
        for table, numbers in (("a", (2, 4, 6)), ("b", (3, 5, 7))):
            written.rows[table] = [{"id": number, "text": ""} for number in numbers]
        await reader.until_caught_up()
        assert sorted(reader.tables["b"]) == [3, 5, 7]
        reader.start()
        await fill(written, 8, 9)
        await until(lambda: reader.tables == {"a": [2, 4, 6, 8], "b": [3, 5, 7, 9]})
        await reader.stop()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "deleted from the stream before they were read" in caplog.text


def test_an_old_snapshot_with_a_hole_behind_it_is_not_taken() -> None:
    async def test(written: Written) -> None:
        await Reader(["a"]).until_caught_up()
        await fill(written, 1, 6)
        await written.jetstream.delete_msg("CDC", 2)
        written.rows["a"] = [{"id": number, "text": ""} for number in (2, 4, 6)]
        written.requests.clear()
        reader = Reader(["a"])
        await reader.until_caught_up()
        assert reader.tables["a"] == [2, 4, 6]
        assert written.requests == ["a"]

    run(test)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_part_of_an_event_that_was_deleted_stops_nobody(part: int) -> None:
    async def test(written: Written) -> None:
        written.chained = True
        reader = Reader(["a"])
        await reader.until_caught_up()
        await written.event(("a", 1), Place(1, 1, 0), parts=3)
        await written.jetstream.delete_msg("CDC", part)
        written.rows["a"] = [{"id": 1, "text": ""}]
        await written.event(("a", 2), Place(2, 1, 0), parts=2)
        written.rows["a"].append({"id": 2, "text": ""})
        await reader.until_caught_up()
        assert reader.tables["a"] == [1, 2]

    run(test)


def test_a_snapshot_that_stands_between_two_parts() -> None:
    async def test(written: Written) -> None:
        sent = asyncio.create_task(written.event(("a", 1), Place(1, 1, 0), parts=2, pause_s=0.3))
        await until(lambda: "public.a" in written._last)
        written.rows["a"] = [{"id": 1, "text": ""}]
        reader = Reader(["a"])
        reader.start()
        await until(lambda: bool(reader.snapshots))
        await sent
        await written.event(("a", 2), Place(2, 1, 0))
        await until(lambda: reader.tables["a"] == [1, 2])
        assert reader.snapshots == ["a"]
        await reader.stop()

    run(test)


def test_an_event_that_comes_late_makes_its_table_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a", "b"])
        reader.start()
        await reader.caught_up.wait()
        for number in (1, 2, 3):
            await written.event(("a", number), Place(number, 1, 0))
        await until(lambda: reader.tables["a"] == [1, 2, 3])
        await written.event(("a", 3), Place(3, 1, 0))  # the server drops it by its id
        written.rows["a"] = [{"id": number, "text": ""} for number in (1, 2, 3, 4)]
        await written.event(("b", 5), Place(5, 1, 0))
        await written.event(("a", 4), Place(4, 1, 0))
        await until(lambda: reader.snapshots == ["a", "b", "a"])
        assert reader.tables == {"a": [1, 2, 3, 4], "b": [5]}
        await reader.stop()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "came late" in caplog.text


def test_a_repetition_is_left_out() -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a"])
        reader.start()
        await reader.caught_up.wait()
        await written.jetstream.update_stream(StreamConfig(name="CDC", subjects=["cdc.>"], duplicate_window=0.1))
        for number in (1, 2):
            await written.event(("a", number), Place(number, 1, 0))
        last = 2
        while last == 2:  # until the server has forgotten the ids
            await written.event(("a", 1), Place(1, 1, 0))
            last = (await written.jetstream.stream_info("CDC")).state.last_seq
        await written.event(("a", 3), Place(3, 1, 0))
        await until(lambda: reader.tables["a"] == [1, 2, 3])
        assert reader.snapshots == ["a"]
        await reader.stop()

    run(test)


# The stream made again ----------------------------------------------------------------------------------------


async def make_again(written: Written) -> None:
    await written.jetstream.delete_stream("CDC")
    await written.jetstream.add_stream(StreamConfig(name="CDC", subjects=["cdc.>"]))
    written._last.clear()


def test_a_position_of_a_deleted_stream_does_not_fit_although_its_numbers_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a"])
        await fill(written, 1, 4, "a")
        await reader.until_caught_up()
        await fill(written, 5, 6, "a")
        await reader.until_caught_up()
        await make_again(written)
        await fill(written, 7, 16, "a")
        written.rows["a"] = [{"id": number, "text": ""} for number in range(1, 17)]
        written.requests.clear()
        await reader.until_caught_up()
        assert sorted(reader.tables["a"]) == list(range(1, 17))
        assert written.requests == ["a"]

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "the stream was made again at" in caplog.text


def test_a_new_consumer_takes_no_snapshot_of_a_deleted_stream() -> None:
    async def test(written: Written) -> None:
        await fill(written, 1, 4, "a")
        await Reader(["a"]).until_caught_up()
        await make_again(written)
        await fill(written, 5, 12, "a")
        written.rows["a"] = [{"id": number, "text": ""} for number in range(1, 13)]
        reader = Reader(["a"])
        await reader.until_caught_up()
        assert sorted(reader.tables["a"]) == list(range(1, 13))

    run(test)


@pytest.mark.parametrize("wanted", [["a"], "*"])
def test_a_stream_made_again_while_it_is_read(wanted: Wanted, caplog: pytest.LogCaptureFixture) -> None:
    async def test(written: Written) -> None:
        reader = Reader(wanted)
        reader.start()
        await reader.caught_up.wait()
        await fill(written, 1, 4, "a")
        await until(lambda: reader.tables["a"] == [1, 2, 3, 4])
        written.rows["a"] = [{"id": number, "text": ""} for number in range(1, 5)]
        await make_again(written)
        await until(lambda: reader.snapshots.count("a") == 2)
        await fill(written, 5, 12, "a")
        await until(lambda: reader.tables["a"] == list(range(1, 13)))
        await reader.stop()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "deleted and made again" in caplog.text


# New tables ---------------------------------------------------------------------------------------------------


def test_a_table_that_is_only_in_the_bucket_is_copied_while_the_stream_is_read() -> None:
    async def test(written: Written) -> None:
        reader = Reader("*")
        reader.start()
        await reader.caught_up.wait()
        written.rows["added"] = [{"id": 1, "text": ""}]
        await written.describe("added")
        await until(lambda: reader.tables.get("added") == [1])
        assert sorted(reader.snapshots) == ["a", "added", "b", "c"]
        await reader.stop()

    run(test)


def test_a_bridge_that_has_just_started_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Which tables it has it does not know yet: that is no reason to give up, as a table that is not there is."""

    async def test(written: Written) -> None:
        refusal = {"kind": "connect", "message": "the bridge has just started", "remedy": "ask again"}
        written.refusals = [refusal, refusal]
        written.rows["a"] = [{"id": 7, "text": ""}]
        reader = Reader(["a"])
        reader.start()
        await reader.caught_up.wait()
        assert reader.tables == {"a": [7]}
        assert written.requests == ["a", "a", "a"]
        await reader.stop()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "the bridge has just started; asking until somebody does" in caplog.text
