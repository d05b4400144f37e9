"""One contract, three targets: whatever happens at the source, the replica becomes the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from psycopg.conninfo import make_conninfo

from headgate.consume import Schema, TableName
from headgate.model import StateError
from headgate.replica import Replica, TableReport, Target, open_target, verify
from headgate.replica.verify import Source
from tests.snapshots import Origin, fresh_database, target_url

KINDS = ["sqlite", "duckdb", "postgresql"]
Tables = Sequence[str] | Literal["*"]


@dataclass
class Pair:
    """A source, and the replica of it."""

    origin: Origin
    target_url: str

    async def follow(self, tables: Tables = "*", **options: Any) -> Replica:
        """Publish what is new, and apply it all."""
        await self.origin.pump()
        with opened(self.target_url) as target:
            replica = Replica(target, self.origin.database.nats_url, tables, **options)
            await replica.run(once=True)
            return replica

    async def reports(self, publications: Sequence[str] | None = None, user: str = "") -> list[TableReport]:
        async def applied() -> bool:
            return True

        url = make_conninfo(self.origin.database.url, **({"user": user} if user else {}))
        source = Source(url, slot="none", publications=publications)  # ours moves when we pump, and by itself not
        try:
            with opened(self.target_url) as target:
                return await verify(source, target, applied, wait_s=5)
        finally:
            source.close()

    async def check(self, tables: Tables = "*") -> None:
        """Follow, then compare every row."""
        await self.follow(tables)
        reports = await self.reports()
        assert reports
        for report in reports:
            assert report.is_exact, (report.table, report.differences)
            [[count]] = self.origin.sql(f'select count(*) from "{report.table.schema}"."{report.table.table}"')
            assert report.row_count == count

    def ask(self, sql: str) -> list[Any]:
        with opened(self.target_url) as target:
            return target.execute(sql)


class opened:  # noqa: N801 - a context manager that reads like a function
    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Target:
        self._target = open_target(self._url)
        return self._target

    def __exit__(self, *_: object) -> None:
        self._target.close()


@asynccontextmanager
async def pair(kind: str, directory: Path, tables: str, **options: Any) -> AsyncIterator[Pair]:
    with fresh_database() as database, fresh_database() as other:
        origin = await Origin.open(database, tables, **options)
        try:
            yield Pair(origin, target_url(kind, directory, other))
        finally:
            await origin.close()


def run(test: Callable[[], Awaitable[None]], timeout_s: float = 40) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(timeout_s):
            await test()

    asyncio.run(within_time())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ALL_TYPES = """
    create type mood as enum ('sad', 'it''s "fine"'); create domain score as smallint;
    create domain day as date;
    create type place as (floor int, name text);
    create table sample (
        id uuid primary key, price numeric, exact numeric(12,2), ratio float8, small float4, yes boolean, data bytea,
        d date, t time, ts timestamp, tz timestamptz, span interval, doc jsonb, raw json, feeling mood, points score,
        born day, where_to place, tags text[], grid int[][], fixed char(5), label varchar(10), ip inet, r int4range,
        big int8, bits bit(3), offset_time timetz);
    insert into sample values
        ('00000000-0000-4000-8000-000000000001', 'NaN', 12.50, 'NaN', 0.1, true, '\\x00ff', '2025-01-31', '24:00',
         'infinity', '2025-12-12 12:00:34.338547+02', '1 year -3 days', '{"a": [1, 2.50]}', '{"b":1, "b":2}',
         'it''s "fine"', 7,
         '2020-02-29', '(3,"a \\"b")', '{a,NULL,"c d"}', '{{1,2},{3,4}}', 'ab', '', '10.0.0.1/8', '[1,5)',
         9223372036854775807, '101', '12:00:00+02'),
        ('00000000-0000-4000-8000-000000000002', 1.10, -0.01, '-0', '-infinity', false, '', '12345-06-07', '00:00:00.5',
         '0044-03-15 00:00:00 BC', '-infinity', 'PT0.000001S', 'null', '[]', 'sad', 0, 'infinity', '(,)', '{}', '{}',
         '', 'ü☃', '::1', 'empty', -1, '000', '23:59:59.999999-15:59');
    insert into sample values ('00000000-0000-4000-8000-000000000003');
"""


@pytest.mark.parametrize("is_json", [False, True])
def test_every_type_is_kept(kind: str, is_json: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with pair(kind, tmp_path, ALL_TYPES, is_json=is_json) as it:
            await it.check()
            it.origin.sql("""
                create table held as select * from sample; update sample set label = 'again';
                insert into sample select ('00000000-0000-4000-8000-00000000001' || right(id::text, 1))::uuid, price,
                    exact, ratio, small, yes, data, d, t, ts, tz, span, doc, raw, feeling, points, born, where_to, tags,
                    grid, fixed,
                    label, ip, r, big, bits, offset_time from held; drop table held""")
            await it.check(["sample"])

    run(test)


def test_inserts_updates_deletes_and_changed_keys(kind: str, tmp_path: Path) -> None:
    tables = """
        create table pairs (a int, b text, v text, primary key (a, b));
        insert into pairs values (1, '', 'empty'), (1, 'x', null), (2, '', 'two');
    """

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            it.origin.sql("""
                begin; update pairs set b = 'y' where a = 1 and b = ''; insert into pairs values (1, '', 'again');
                delete from pairs where a = 2; insert into pairs values (2, '', 'back'); commit;
                update pairs set v = 'q' where b = ''; update pairs set a = a + 10;
                begin; update pairs set b = 'tmp' where b = 'x'; update pairs set b = 'x' where b = 'y';
                update pairs set b = 'y' where b = 'tmp'; commit""")
            await it.check()
            assert sorted(row[0] for row in it.ask("select a from pairs")) == [11, 11, 11, 12]
            it.origin.sql("delete from pairs")
            await it.check()

    run(test)


def test_values_that_were_not_sent_are_kept(kind: str, tmp_path: Path) -> None:
    tables = """
        create table document (id int primary key, title text, body text, n int default 0);
        alter table document alter body set storage external;
        insert into document select i, 't', repeat(i::text, 5000), 0 from generate_series(1, 4) i;
    """

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            it.origin.sql("update document set n = n + 1; update document set title = 'x' where id < 3")
            await it.check()
            # A new row, a new key, and a key that comes back: each without the large value.
            it.origin.sql("""
                begin; insert into document values (9, '', repeat('z', 9000), 0);
                update document set n = 5 where id = 9; commit;
                begin; update document set id = 20 where id = 1; update document set title = 'moved' where id = 20;
                update document set id = 1 where id = 2; update document set n = 7 where id = 1; commit""")
            await it.check()
            [[length]] = it.ask("select length(body) from document where id = 20")
            assert length == 5000

    run(test)


def test_tables_without_a_key(kind: str, tmp_path: Path) -> None:
    tables = """
        create table bag (a int, b text, f float8); alter table bag replica identity full;
        create table log (line text, at timestamptz);
        create table full_key (id int primary key, v text); alter table full_key replica identity full;
        insert into bag values (1, 'x', 'NaN'), (1, 'x', 'NaN'), (1, 'x', 'NaN'), (null, null, null);
        insert into full_key values (1, 'a');
    """

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            it.origin.sql("delete from bag where ctid = (select min(ctid) from bag)")
            it.origin.sql("update bag set b = 'y' where ctid = (select min(ctid) from bag where a = 1)")
            it.origin.sql("insert into log values ('one', now()), ('one', now()); delete from bag where a is null")
            it.origin.sql("begin; insert into bag values (5, '', 0); delete from bag where a = 5; commit")
            it.origin.sql(
                "update full_key set id = 2; insert into full_key values (3, null); delete from full_key where id = 2"
            )
            await it.check()
            assert len(it.ask("select * from bag")) == 2

    run(test)


def test_rows_without_a_key_are_removed_in_bulk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = """
        create table bag (a int, b text, f float8, n numeric, at timestamptz, doc json, parts text[]);
        alter table bag replica identity full;
        insert into bag select i % 50, nullif(i % 7, 0)::text, i % 3, 1.10, 'epoch', '{"a": 1}', '{x,NULL}'
            from generate_series(1, 1000) i;
        insert into bag values (0, '', '-0', 1.1, 'infinity', null, '{}'), (0, '', '0', 1.1, 'infinity', null, '{}');
        insert into bag select from generate_series(1, 5)
    """
    batches: list[int] = []

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            it.origin.chunk_rows = 500
            await it.check()
            with opened(it.target_url) as target:
                remove = type(target).remove

            def counted(self: Target, schema: Schema, rows: Sequence[tuple[tuple[Any, ...], int]]) -> None:
                batches.append(sum(count for _, count in rows))
                remove(self, schema, rows)

            monkeypatch.setattr(f"{remove.__module__}.{type(target).__name__}.remove", counted)
            it.origin.sql("delete from bag where ctid in (select ctid from bag where a < 25 limit 400)")
            it.origin.sql(
                "update bag set n = 1.100 where f = 0; delete from bag where ctid = (select max(ctid) from bag)"
            )
            await it.check()
            assert sum(batches) > 500
            assert len(batches) <= 3

    run(test)


def test_truncate(kind: str, tmp_path: Path) -> None:
    tables = """
        create table parent (id int primary key); create table child (id int primary key, p int references parent);
        insert into parent values (1), (2); insert into child values (1, 1);
    """

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            it.origin.sql(
                "begin; insert into parent values (3); truncate parent cascade;"
                "insert into parent values (2), (9); commit"
            )
            await it.check()
            assert it.ask("select count(*) from child") == [(0,)]

    run(test)


def test_shapes_change(kind: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with pair(
            kind, tmp_path, "create table t (id int primary key, a text, b int); insert into t values (1, 'x', 1)"
        ) as it:
            await it.check()
            for statements, snapshots in (
                ("alter table t add c date; insert into t values (2, 'y', 2, '2025-01-01')", 1),
                ("alter table t drop a; update t set b = 5", 1),
                ("alter table t rename b to bb; insert into t values (3, 3)", 2),
                ("alter table t alter bb type text; insert into t values (4, 'four')", 3),
                ("alter table t add d int default 7; insert into t values (5)", 4),
                ("begin; update t set d = 1; insert into t values (6); commit; delete from t where id = 1", 4),
            ):
                it.origin.sql(statements)
                await it.check()
                assert it.origin.requests.count("t") == snapshots, statements
            it.origin.sql(
                "create schema other; create table other.added (id int primary key); insert into other.added values (1)"
            )
            await it.check()
            it.origin.sql("insert into other.added values (2)")
            await it.check()

    run(test)


def test_a_table_that_is_copied_anew_costs_the_others_nothing(kind: str, tmp_path: Path) -> None:
    tables = "create table t (id int primary key, a text); create table other (id int primary key)"

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            # All in one go, so that the changes of the one are still on their way when the other begins anew.
            for number in range(20):
                it.origin.sql(f"insert into other values ({number})")
            it.origin.sql("alter table t rename a to b; insert into t values (1, 'x')")
            it.origin.sql("begin; insert into other values (100); insert into t values (2, 'y'); commit")
            await it.check()

    run(test)


def test_a_transaction_in_parts_is_one_commit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.consume.follow._MAX_PART", 100)

    async def test() -> None:
        async with pair(kind, tmp_path, "create table t (id int primary key, v text)") as it:
            await it.check()
            it.origin.sql("insert into t values (1, 'before')")
            it.origin.sql("""
                begin; insert into t select i, 'v' from generate_series(2, 250) i; update t set v = 'w' where id > 200;
                delete from t where id < 20; commit; insert into t values (1, 'after')""")
            replica = await it.follow()
            assert replica.progress.changes == 1 + 249 + 50 + 19 + 1
            assert replica.progress.commits <= 3
            await it.check()

    run(test)


def test_a_table_that_it_did_not_make_is_not_touched(kind: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with pair(kind, tmp_path, "create table t (id int primary key)") as it:
            it.ask("create table t (mine int)")
            with pytest.raises(StateError, match="no replica made it"):
                await it.follow()
            assert it.ask("select * from t") == []

    run(test)


def test_a_second_writer_is_noticed(kind: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with pair(kind, tmp_path, "create table t (id int primary key)") as it:
            await it.follow()
            with opened(it.target_url) as target:
                target.claim()
                target.execute("update _headgate_replica set value = 'somebody' where name = 'owner'")
                target.begin()
                with pytest.raises(StateError, match="another process"):
                    target.save({})
                target.rollback()

    run(test)


def test_differences_are_found_and_repaired(kind: str, tmp_path: Path) -> None:
    tables = "create table t (id int primary key, v text); insert into t select i, 'v' from generate_series(1, 50) i"

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            with opened(it.target_url) as target:
                target.execute("delete from t where id = 7")
                target.execute("update t set v = 'w' where id = 8")
                target.execute("insert into t values (99, 'x')")
            [report] = await it.reports()
            assert report.table == TableName("public", "t")
            assert {(each.key, each.kind) for each in report.differences} == {
                ((7,), "missing"), ((8,), "different"), ((99,), "extra"),
            }  # fmt: skip
            await it.follow(repair=["t"])
            [report] = await it.reports()
            assert report.is_exact

    run(test)


def test_another_table_of_the_same_name_and_shape(kind: str, tmp_path: Path) -> None:
    shape = "(id int primary key, v text)"
    tables = f"create table t {shape}; create table u {shape}; insert into t values (1); insert into u values (2)"
    swap = "begin; alter table t rename to w; alter table u rename to t; alter table w rename to u; commit"

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            for statements in (
                f"drop table t; create table t {shape}; insert into t values (5, 'new')",
                f"{swap}; insert into t values (6, 'x'); insert into u values (7, 'y')",
                f"alter table t rename to old; create table t {shape}; insert into t values (8, 'z')",
                "drop table t; alter table old rename to t; insert into t values (9, 'back')",
            ):
                it.origin.sql(statements)
                await it.check()

    run(test)


def test_a_table_that_went_away_is_kept_and_shown(kind: str, tmp_path: Path) -> None:
    tables = "create table t (id int primary key); create table u (id int primary key); insert into t values (1)"

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check(["t", "u"])
            it.origin.sql("drop table t; insert into u values (2)")
            await it.origin.forget("t")
            for names in (["t", "u"], "*"):
                await it.follow(names)
                with opened(it.target_url) as target:
                    assert target.gone() == {TableName("public", "t")}
                assert it.ask("select id from t") == [(1,)]
            assert it.ask("select id from u") == [(2,)]
            it.origin.sql("create table t (id int primary key); insert into t values (7)")
            await it.check(["t", "u"])
            with opened(it.target_url) as target:
                assert target.gone() == set()

    run(test)


def test_a_table_that_went_away_is_dropped_if_so_asked(kind: str, tmp_path: Path) -> None:
    tables = "create table t (id int primary key); create table u (id int primary key); insert into t values (1)"

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check(["t", "u"])
            it.origin.sql("drop table t; insert into u values (2)")
            await it.origin.forget("t")
            await it.follow(["t", "u"], on_dropped="drop")
            with opened(it.target_url) as target:
                assert [str(name) for name in target.load()[1]] == ["public.u"]
                assert not target.exists(target.place(TableName("public", "t")))
            await it.follow(["t", "u"], on_dropped="drop")
            it.origin.sql("create table t (id int primary key); insert into t values (7)")
            await it.check(["t", "u"])

    run(test)


def test_verify_knows_row_filters_lists_of_columns_and_grants(kind: str, tmp_path: Path) -> None:
    tables = """
        create table t (id int primary key, v text, secret text);
        insert into t select i, 'v', 's' from generate_series(1, 20) i;
        do $$ begin create role narrow login; exception when duplicate_object then null; end $$;
        grant select (id, v) on t to narrow
    """

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            it.origin.sql("drop publication p; create publication p for table t (id, v) where (id > 10)")
            it.origin.sql("create publication other for table t")
            await it.origin.describe_all()
            await it.follow()
            it.origin.sql("insert into t values (5, 'out', ''), (25, 'in', '') on conflict do nothing")
            it.origin.sql(
                "delete from t where id = 3; update t set id = 3 where id = 12; update t set id = 12 where id = 2"
            )
            await it.follow()
            with pytest.raises(StateError, match="different row filters"):
                await it.reports()
            [report] = await it.reports(["p"], user="narrow")
            assert (report.is_exact, report.row_count) == (True, 11)
            it.origin.sql("drop owned by narrow; drop role narrow")

    run(test)


def test_verify_survives_whatever_became_of_a_table(kind: str, tmp_path: Path) -> None:
    tables = ";".join(f"create table {name} (id int primary key, v text); insert into {name} values (1, 'x')"
                      for name in ("gone", "lost", "narrower", '"odd.Name"'))  # fmt: skip

    async def test() -> None:
        async with pair(kind, tmp_path, tables) as it:
            await it.check()
            it.origin.sql("drop table gone; alter table narrower drop v")
            await it.origin.forget("gone")
            await it.origin.describe_all()
            with opened(it.target_url) as target:
                target.execute("drop table lost")
                target.execute('delete from "odd.Name"')
            problems = {report.table.table: report for report in await it.reports()}
            assert not any(report.is_exact for report in problems.values())
            assert problems["lost"].problem == "the target has it no more"
            assert problems["gone"].problem == "there is no such table any more"
            assert problems["narrower"].problem == "its columns are others"
            await it.follow([str(each.table) for each in problems.values()],
                            repair=[str(each.table) for each in problems.values() if each.can_mend])  # fmt: skip
            mended = {report.table.table: report for report in await it.reports()}
            assert all(report.is_exact for report in mended.values())
            assert mended["gone"].is_gone

    run(test)
