"""Schemas: steps that run once, histories that are refused, and those of versions before, which are taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headgate.broker import install as install_broker
from headgate.commitlog.install import install as install_log
from headgate.embedded import Endpoints
from headgate.model import AuthError, StateError
from headgate.postgres.migrations import Plan, Step, applied, migrate, numbered_steps
from tests.gateway.servers import new_database

_SCHEMA = "made"
_STEPS = (
    Step(1, "01_one.sql", b"create table one (n int); insert into one values (1)"),
    Step(2, "02_two.sql", b"create function two() returns bigint language sql as 'select count(*) from one'"),
)
_PLAN = Plan(_SCHEMA, _STEPS, "headgate test")


@pytest.fixture
def connection(endpoints: Endpoints) -> Iterator[psycopg.Connection]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url, psycopg.connect(url, autocommit=True) as opened:
        yield opened


def test_steps_run_once_and_in_their_order(connection: psycopg.Connection) -> None:
    assert migrate(connection, replace(_PLAN, steps=_STEPS[:1])) == [_STEPS[0]]
    assert migrate(connection, _PLAN) == [_STEPS[1]]
    assert migrate(connection, _PLAN) == []
    assert applied(connection, _PLAN) == {step.key: step.checksum for step in _STEPS}
    assert connection.execute("select n from made.one").fetchall() == [(1,)]
    assert connection.execute("show search_path").fetchone() != ("made, pg_temp",)  # what was said was for the steps


def test_many_at_once_run_each_step_once(connection: psycopg.Connection) -> None:
    def run(_: int) -> int:
        with psycopg.connect(connection.info.dsn, password=connection.info.password) as other:
            return len(migrate(other, _PLAN))

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(run, range(4))) == [0, 0, 0, 2]


def test_a_step_that_fails_leaves_nothing(connection: psycopg.Connection) -> None:
    broken = replace(_PLAN, steps=(*_STEPS, Step(3, "03_three.sql", b"select 1 / 0")))
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(connection, broken)
    assert applied(connection, _PLAN) == {}
    assert connection.execute("select to_regnamespace(%s)", [_SCHEMA]).fetchone() == (None,)


def test_a_temporary_table_stands_before_nothing(connection: psycopg.Connection) -> None:
    connection.execute("create temporary table one (n int)")
    migrate(connection, _PLAN)
    assert connection.execute("select count(*) from made.one").fetchone() == (1,)


@pytest.mark.parametrize("number", [0, 1])
def test_a_step_that_was_edited_is_refused(connection: psycopg.Connection, number: int) -> None:
    migrate(connection, _PLAN)
    steps = list(_STEPS)
    steps[number] = replace(steps[number], statements=steps[number].statements + b" -- better")
    for edited in (steps, [*steps, Step(3, "03_three.sql", b"create table three ()")]):
        with pytest.raises(StateError, match=steps[number].name) as caught:
            migrate(connection, replace(_PLAN, steps=edited))
        assert "install headgate anew" in caught.value.remedy
    assert connection.execute("select to_regclass('made.three')").fetchone() == (None,)


def test_a_newer_schema_is_refused(connection: psycopg.Connection) -> None:
    migrate(connection, _PLAN)
    with pytest.raises(StateError, match="version 2"):
        migrate(connection, replace(_PLAN, steps=_STEPS[:1]))


def test_who_may_only_read_is_told_what_is_missing(connection: psycopg.Connection) -> None:
    """A complete schema asks for nothing else, not even when its steps have no checksums."""
    role = f"r{uuid4().hex[:8]}"
    name = sql.Identifier(role)
    migrate(connection, replace(_PLAN, steps=_STEPS[:1]))
    connection.execute("alter table made.migrations drop column checksum")
    connection.execute(sql.SQL("create role {}").format(name))
    try:
        for right in ("usage on schema made", "select on made.migrations"):
            connection.execute(sql.SQL(f"grant {right} to {{}}").format(name))
        connection.execute(sql.SQL("set role {}").format(name))
        assert migrate(connection, replace(_PLAN, steps=_STEPS[:1])) == []
        with pytest.raises(AuthError, match="permission denied"):
            migrate(connection, _PLAN)
    finally:
        connection.execute("reset role")
        connection.execute(sql.SQL("drop owned by {}").format(name))
        connection.execute(sql.SQL("drop role {}").format(name))


@pytest.mark.parametrize(
    ("schema", "install", "edit"),
    [
        ("headgate", install_broker, "update headgate.migrations set checksum = 'x' where name ~ '^0.1.0_03'"),
        ("kafka", install_log, "update kafka.migrations set checksum = 'x' where version = 3"),
    ],
)
def test_what_kept_no_checksums_is_taken_over(
    connection: psycopg.Connection, schema: str, install: Callable[[psycopg.Connection], object], edit: str
) -> None:
    """As versions before left it; those may go on beside it, and write their rows."""
    install(connection)
    table = sql.Identifier(schema, "migrations")
    missing = sql.SQL("select count(*) from {} where checksum is null").format(table)
    connection.execute(sql.SQL("alter table {} drop column checksum").format(table))
    install(connection)
    assert connection.execute(missing).fetchone() == (0,)
    connection.execute(edit.encode())
    with pytest.raises(StateError, match="another"):
        install(connection)


def test_files_are_numbered_and_a_gap_is_harmless(tmp_path: Path) -> None:
    for name in ("04_d.sql", "02_b.sql", "01_a.sql", "README.md"):
        (tmp_path / name).write_text(name)
    assert [step.name for step in numbered_steps(tmp_path)] == ["01_a.sql", "02_b.sql", "04_d.sql"]
    (tmp_path / "04_e.sql").write_text("")
    with pytest.raises(AssertionError):
        numbered_steps(tmp_path)


def test_a_file_that_fills_a_gap_runs_later(connection: psycopg.Connection) -> None:
    steps = (_STEPS[0], Step(3, "03_three.sql", b"create table three ()"))
    migrate(connection, replace(_PLAN, steps=steps))
    assert migrate(connection, replace(_PLAN, steps=(*_STEPS, steps[1]))) == [_STEPS[1]]
    assert set(applied(connection, _PLAN)) == {1, 2, 3}
