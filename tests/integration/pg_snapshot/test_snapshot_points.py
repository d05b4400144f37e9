"""Taking and holding a point: what it waits for, what it keeps from happening, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import pq

from headgate.model import AuthError, ConfigError, ConnectError, StateError
from headgate.sources.postgres_snapshot.blockers import running_transactions
from headgate.sources.postgres_snapshot.connections import connect_pinned
from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.plan import plan_table
from headgate.sources.postgres_snapshot.points import Method, take_point
from headgate.sources.postgres_snapshot.reading import read_range
from tests.integration.pg_snapshot.source import Source

METHODS: tuple[Method, ...] = ("export", "filter")


@contextmanager
def writing(source: Source, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has written and stays open."""
    with psycopg.connect(source.url, options=f"-c search_path={source.name}") as connection:
        connection.execute(statement.encode())
        yield connection


@pytest.mark.parametrize("method", METHODS)
def test_a_point_is_held_until_the_end(source: Source, method: Method) -> None:
    source.sql("create table t (id int); insert into t values (1)")
    with source.point("t", method) as point:
        source.sql("insert into t values (2)")
        assert len(source.rows_at(point, "t")) == 1
        assert (point.method, point.lsn > 0, point.xmax > 0) == (method, True, method == "filter")
        slots = source.sql("select count(*) from pg_replication_slots where temporary")
        assert slots == [(int(method == "export"),)]
        plan, options = source.plan("t"), source.options("t")
    range_ = SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)
    with pytest.raises(StateError, match="the snapshot cannot be used") as caught:
        list(read_range(options, range_))
    assert caught.value.where == f"{source.name}.t, range 0"
    assert len(source.rows("t")) == 2


@pytest.mark.parametrize("method", METHODS)
def test_an_open_transaction_is_waited_for_and_named(source: Source, method: Method) -> None:
    source.sql("create table t (id int)")
    with writing(source, "insert into t values (1)") as writer:
        with (
            pytest.raises(ConnectError, match=r"no consistent point within 0\.2 s") as caught,
            source.point("t", method, timeout_s=0.2),
        ):
            pass
        assert f"pid {writer.info.backend_pid} (idle in transaction), open for 0." in caught.value.message
        assert f"pg_terminate_backend({writer.info.backend_pid})" in caught.value.remedy
        taken: list[int] = []
        waiting = threading.Thread(target=lambda: taken.append(len(source.rows("t"))))
        waiting.start()
        writer.commit()
        waiting.join(20)
    assert taken == [1]


def test_a_role_with_few_rights_still_learns_who_blocks(source: Source) -> None:
    source.sql("create table t (id int)")
    source.sql("create role snapshot_stranger login")
    url = source.url.replace("user=headgate", "user=snapshot_stranger")
    try:
        with writing(source, "insert into t values (1)") as writer, connect_pinned(url, "test") as connection:
            seen = {each.pid: str(each) for each in running_transactions(connection)}
            assert seen[writer.info.backend_pid] == f"pid {writer.info.backend_pid}"
    finally:
        source.sql("drop role snapshot_stranger")


@pytest.mark.parametrize("method", METHODS)
def test_nothing_rewrites_the_table_meanwhile(source: Source, method: Method) -> None:
    """A rewritten or truncated table is empty for older snapshots, and the stream would not make up for it."""
    source.sql("create table t (id int); insert into t values (1)")
    with source.point("t", method) as point, psycopg.connect(source.url) as other:
        other.execute("set lock_timeout = '100ms'")
        for statement in (f"alter table {source.name}.t alter id type bigint", f"truncate {source.name}.t"):
            with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
                other.execute(statement.encode())
        assert len(source.rows_at(point, "t")) == 1


def test_a_table_that_is_being_changed_is_waited_for(source: Source) -> None:
    source.sql("create table t (id int)")
    with psycopg.connect(source.url) as other, other.transaction():
        other.execute(f"lock table {source.name}.t in access exclusive mode".encode())
        with (
            pytest.raises(ConnectError, match=r"somebody changes the table for more than 0\.1 s"),
            source.point("t", "export", timeout_s=0.1),
        ):
            pass


def test_who_only_reads_is_not_waited_for(source: Source) -> None:
    source.sql("create table t (id int)")
    with psycopg.connect(source.url) as reader:
        reader.execute(f"select count(*) from {source.name}.t".encode())
        for method in METHODS:
            with source.point("t", method, timeout_s=5):
                pass


@pytest.mark.parametrize(
    ("setup", "table", "message", "remedy"),
    [
        ("", "ghosts", "has no table", "correct the name"),
        ("create view v as select 1 as a", "v", "is a view", "the tables behind it"),
        ("create materialized view m as select 1 as a", "m", "is a materialized view", "the tables behind it"),
        ("create unlogged table u (id int)", "u", "has no table", "ADD TABLE"),
        (
            "create table p (id int) partition by list (id); create table p1 partition of p for values in (1)",
            "p",
            "has no table",
            "publish_via_partition_root",
        ),
    ],
)
def test_what_is_no_published_table(source: Source, setup: str, table: str, message: str, remedy: str) -> None:
    if setup:
        source.sql(setup)
    with pytest.raises(ConfigError, match=message) as caught:
        source.plan(table)
    assert remedy in caught.value.remedy
    assert caught.value.where == f"{source.name}.{table}"


def test_foreign_tables_are_refused_as_such_and_as_partitions(source: Source) -> None:
    source.sql(f"create foreign data wrapper {source.name}")
    source.sql(f"create server {source.name} foreign data wrapper {source.name}")
    try:
        source.sql(f"create foreign table f (id int) server {source.name}")
        source.sql("create table p (id int) partition by list (id)")
        source.publish("root", "for table p with (publish_via_partition_root)")
        source.sql(f"create foreign table f1 partition of p for values in (1) server {source.name}")
        for table in ("f", "p"):
            with pytest.raises(ConfigError, match="a foreign table"):
                source.plan(table)
    finally:
        source.sql(f"drop foreign data wrapper {source.name} cascade")


def test_publications_that_do_not_exist_or_disagree(source: Source) -> None:
    source.sql("create table t (id int primary key, a int)")
    with pytest.raises(ConfigError, match="there is no publication nowhere"):
        plan_table(source.url, source.name, "t", ("nowhere",))
    source.publish("one", "for table t (id)")
    source.publish("two", "for table t (id, a)")
    with pytest.raises(ConfigError, match="different columns"):
        source.plan("t")


def test_rights_that_are_missing_are_told_with_their_remedy(source: Source) -> None:
    """Also those that would otherwise hide rows without a word."""
    source.sql("create role snapshot_reader login; create table t (id int); insert into t values (1)")
    url = source.url.replace("user=headgate", "user=snapshot_reader")
    try:
        with pytest.raises(AuthError) as caught, take_point(url, "filter", source.name, "t", 5):
            pass
        assert caught.value.remedy == f'GRANT SELECT ON "{source.name}"."t" TO "snapshot_reader";'
        source.sql(f"grant usage on schema {source.name} to snapshot_reader; grant select on t to snapshot_reader")
        source.sql("alter table t enable row level security")
        with take_point(url, "filter", source.name, "t", 5) as point:
            plan = source.plan("t")
            options = source.options("t")
            options = type(options)(url, options.table, options.publication)
            with pytest.raises(AuthError, match="row-level security") as caught:
                list(read_range(options, SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)))
        assert caught.value.remedy == 'ALTER ROLE "snapshot_reader" BYPASSRLS;'
        source.sql("alter table t disable row level security; revoke select on t from snapshot_reader")
        with source.point("t") as point, pytest.raises(AuthError, match="permission denied"):
            list(read_range(options, SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)))
    finally:
        source.sql("drop owned by snapshot_reader; drop role snapshot_reader")


def test_a_connection_that_breaks_while_reading(source: Source) -> None:
    source.sql("create table t (id int, t text)")
    source.sql("insert into t select g, repeat('x', 1000) from generate_series(1, 20000) g")
    with source.point("t") as point:
        plan = source.plan("t")
        batches = read_range(
            source.options("t", batch_rows=10), SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)
        )
        next(batches)
        name = f"headgate snapshot {point.snapshot_name}"
        assert source.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", name)
        with pytest.raises(ConnectError):
            list(batches)


def test_a_reader_that_is_given_up_leaves_no_connection(source: Source) -> None:
    source.sql("create table t (id int); insert into t select generate_series(1, 100000)")
    with source.point("t") as point:
        plan = source.plan("t")
        batches = read_range(source.options("t"), SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        for _ in range(200):
            name = f"headgate snapshot {point.snapshot_name}"
            if not source.sql("select 1 from pg_stat_activity where application_name = %s", name):
                return
            source.sql("select pg_sleep(0.02)")
    pytest.fail("the server still sends")


def test_the_library_is_the_fast_one() -> None:
    """The pure-Python wrapper of libpq would be several times slower, and the tests would not tell."""
    assert pq.__impl__ in ("binary", "c")


@pytest.mark.parametrize("method", ["export", "filter"])
def test_grants_on_the_published_columns_suffice(source: Source, method: Method) -> None:
    source.sql("create role column_reader login replication; create table t (id int primary key, a text, secret text)")
    source.sql("insert into t select i, 'a', 's' from generate_series(1, 5000) i")
    source.sql(f"grant usage on schema {source.name} to column_reader; grant select (id, a) on t to column_reader")
    source.publish("narrow", "for table t (id, a)")
    url = source.url.replace("user=headgate", "user=column_reader")
    try:
        with take_point(url, method, source.name, "t", 5) as point:
            plan = plan_table(url, source.name, "t", source.publications)
            options = source.options("t")
            options = type(options)(url, options.table, options.publication)
            ranges = plan.ranges(4, 1)
            read = [list(read_range(options, SnapshotRange(plan, each, point.snapshot_name))) for each in ranges]
            assert sum(len(batch) for part in read for batch in part) == 5000
            with pytest.raises(psycopg.errors.LockNotAvailable):
                source.sql("set lock_timeout = '50ms'; alter table t add b int")
    finally:
        source.sql("set lock_timeout = 0; drop owned by column_reader; drop role column_reader")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step", ["plan", "read"])
def test_a_snapshot_makes_way_for_an_alter_table_that_waits_for_it(source: Source, method: Method, step: str) -> None:
    """Whoever reads would queue behind the ALTER, which waits for whoever holds the point."""
    source.sql("create table t (id int); insert into t values (1)")
    with psycopg.connect(source.url, autocommit=True, options=f"-c search_path={source.name}") as other:
        altering = threading.Thread(target=other.execute, args=(b"alter table t add note text",))
        try:
            with source.point("t", method) as point:
                plan = source.plan("t")
                altering.start()
                until_it_waits(source, other.info.backend_pid)
                range_ = SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)
                with pytest.raises(ConnectError, match="lock timeout") as caught:
                    _ = source.plan("t") if step == "plan" else list(read_range(source.options("t"), range_))
                assert "ALTER TABLE" in (caught.value.remedy or "")
        finally:
            altering.join()
    assert len(source.rows("t")) == 1


def until_it_waits(source: Source, pid: int) -> None:
    for _ in range(3000):
        if source.sql("select 1 from pg_locks where pid = %s and not granted", pid):
            return
        source.sql("select pg_sleep(0.01)")
    pytest.fail("it does not wait")
