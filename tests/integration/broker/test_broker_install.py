"""The schema: made in several ways, which all lead to the same, and removed without a trace."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headgate import broker
from headgate.broker import Phase, install, installed, migrations, uninstall
from headgate.embedded.cluster import find_postgres
from headgate.model import StateError, UsageError
from tests.gateway.servers import new_database
from tests.integration.broker.servers import every_server

pytestmark = every_server
SQL = Path(str(resources.files(broker).joinpath("sql")))

# Everything that there is in a schema, as text, without what differs from one database to the next.
CATALOG = """
select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
  pg_get_expr(d.adbin, d.adrelid)
from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = %(schema)s::text::regnamespace
union all select 'relation', relname, relkind::text, relpersistence::text, reloptions::text, relacl::text
from pg_class where relnamespace = %(schema)s::text::regnamespace
union all select 'index', tablename, indexname, indexdef, null, null from pg_indexes where schemaname = %(schema)s::text
union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), null, null
from pg_constraint where connamespace = %(schema)s::text::regnamespace
union all select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), null, null
from pg_trigger where not tgisinternal
union all select 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid), r.rolname, p.proacl::text, null
from pg_proc as p join pg_roles as r on r.oid = p.proowner where pronamespace = %(schema)s::text::regnamespace
union all select 'view', viewname, definition, null, null, null from pg_views where schemaname = %(schema)s::text
union all select 'config', key, value, null, null, null from headgate.config
union all select 'condition', source, expression, route, null, null from headgate.conditions
union all select 'partition', parent, number::text, (opened_at is null)::text, null, null from headgate.partitions
union all select 'migration', name, null, null, null, null from headgate.migrations
order by 1, 2, 3, 4
"""


@pytest.fixture
def empty(template: tuple[str, str]) -> Iterator[str]:
    with new_database(template[0]) as url:
        yield url


def catalog(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(CATALOG, {"schema": "headgate"}).fetchall()


def by_psql(url: str, *options: str) -> None:
    psql = find_postgres(16) / "bin" / "psql"
    subprocess.run([psql, url, "-q", "-1", *options, "-f", SQL / "install.sql"], check=True, timeout=60)


def one_by_one(url: str) -> None:
    """As somebody does who upgrades from each version to the next, each step in a transaction of its own."""
    for name in migrations():
        with psycopg.connect(url) as connection:
            connection.execute("create schema if not exists headgate")
            connection.execute("set search_path = headgate, pg_temp")
            connection.execute("set client_min_messages = warning")
            connection.execute(
                "create table if not exists migrations"
                " (name text primary key, applied_at timestamptz not null default now(), checksum text)"
            )
            connection.execute((SQL / f"{name}.sql").read_bytes())
            connection.execute("insert into migrations (name) values (%s)", [name])


def test_all_migrations_are_a_fresh_install(template: tuple[str, str], empty: str) -> None:
    with psycopg.connect(empty) as connection:
        assert install(connection) == migrations()
        assert install(connection) == []
        assert installed(connection) == migrations()
    fresh = catalog(empty)
    assert len(fresh) > 300
    with new_database(template[0]) as other:
        one_by_one(other)
        assert catalog(other) == fresh
    with new_database(template[0]) as other:
        by_psql(other)
        by_psql(other)
        assert catalog(other) == fresh
    assert re.findall(r"\\ir (\S+)\.sql", (SQL / "install.sql").read_text()) == migrations()


def test_many_install_at_once(empty: str) -> None:
    def run(_: int) -> list[str]:
        with psycopg.connect(empty) as connection:
            return install(connection)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(run, range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, len(migrations())]


def test_the_schema_has_any_name(empty: str) -> None:
    by_psql(empty, "-v", "schema=events_of_ours")
    with psycopg.connect(empty, autocommit=True) as connection:
        install(connection, "second_one")
        for schema in ("events_of_ours", "second_one"):
            name = sql.Identifier(schema)
            connection.execute(sql.SQL("select {}.subscribe('g')").format(name))
            connection.execute(sql.SQL("select {}.publish('t', '{{}}')").format(name))
            connection.execute(sql.SQL("select {}.poll_for_events()").format(name))
            read = sql.SQL("select topic from {}.read_next_events('g')").format(name)
            assert connection.execute(read).fetchall() == [("t",)]
        assert uninstall(connection, "second_one")
        assert not uninstall(connection, "second_one")
        assert uninstall(connection, "events_of_ours")
        left = connection.execute(
            "select rolname from pg_roles where rolname in ('second_one_conditions', 'events_of_ours_conditions')"
        )
        assert left.fetchall() == []
        assert connection.execute("select to_regnamespace('second_one')").fetchone() == (None,)


@pytest.mark.parametrize("name", ["", "Upper", "pg_own", "a" * 41, 'quote"'])
def test_names_that_cannot_be(name: str, empty: str) -> None:
    with psycopg.connect(empty) as connection, pytest.raises(UsageError):
        install(connection, name)


@pytest.mark.parametrize("createrole", [True, False], ids=["createrole", "nothing-else"])
def test_no_superuser_is_needed(empty: str, createrole: bool) -> None:
    role, schema = f"app_{uuid4().hex[:8]}", f"s_{uuid4().hex[:8]}"
    with psycopg.connect(empty, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(
            sql.SQL("create role {} login {}").format(sql.Identifier(role), sql.SQL("createrole" if createrole else ""))
        )
        admin.execute(
            sql.SQL("grant create on database {} to {}").format(sql.Identifier(database), sql.Identifier(role))
        )
        try:
            admin.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))
            install(admin, schema)
            name = sql.Identifier(schema)
            evaluated = sql.SQL("select {}.subscribe('g', 'e.topic like ''t%'' ')").format(name)
            if createrole:
                admin.execute(evaluated)
            else:
                # Nobody to run conditions as: what topics decide works, and the rest is refused with a remedy.
                with pytest.raises(
                    psycopg.errors.InsufficientPrivilege, match="conditions on more than topics are refused"
                ):
                    admin.execute(evaluated)
                admin.execute(sql.SQL("select {}.subscribe('g', 'e.topic = ''t'' ')").format(name))
            admin.execute(sql.SQL("select {}.publish('t', '{{}}')").format(name))
            admin.execute(sql.SQL("select {}.poll_for_events()").format(name))
            assert len(admin.execute(sql.SQL("select * from {}.read_next_events('g')").format(name)).fetchall()) == 1
            admin.execute(sql.SQL("select {}.maintain(now() + interval '2 hours')").format(name))
            owner = admin.execute(
                "select proowner::regrole::text from pg_proc where proname = 'evaluate_v1'"
                " and pronamespace = %s::regnamespace",
                [schema],
            ).fetchone()
            assert owner == (f"{schema}_conditions" if createrole else role,)
            if not createrole:
                _make_role_beforehand(admin, role, schema)
                admin.execute(evaluated)
                admin.execute(sql.SQL("select {}.publish('tt', '{{}}'), {}.poll_for_events()").format(name, name))
                admin.execute(sql.SQL("select {}.poll_for_events()").format(name))
                found = admin.execute(sql.SQL("select topic from {}.read_next_events('g')").format(name)).fetchall()
                assert ("tt",) in found
            assert uninstall(admin, schema)
        finally:
            admin.execute("reset session authorization")
            admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
            admin.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(f"{schema}_conditions")))


def _make_role_beforehand(admin: psycopg.Connection[Any], owner: str, schema: str) -> None:
    """What somebody who may make roles does for an installer that may not."""
    runner = sql.Identifier(f"{schema}_conditions")
    admin.execute("reset session authorization")
    admin.execute(sql.SQL("create role {} nologin").format(runner))
    admin.execute(sql.SQL("grant {} to {}").format(runner, sql.Identifier(owner)))
    admin.execute(sql.SQL("set session authorization {}").format(sql.Identifier(owner)))
    said = admin.execute(sql.SQL("select {}.set_conditions_role()").format(sql.Identifier(schema))).fetchall()
    assert said == [(None,)]


@pytest.mark.parametrize("attribute", ["superuser", "createrole", "login", "in role pg_read_all_data"])
def test_a_mighty_role_runs_no_condition(empty: str, attribute: str) -> None:
    """One that was there before, and may do more than read."""
    schema = f"s_{uuid4().hex[:8]}"
    role = sql.Identifier(f"{schema}_conditions")
    with psycopg.connect(empty, autocommit=True) as admin:
        admin.execute(sql.SQL(f"create role {{}} {attribute}").format(role))
        install(admin, schema)
        subscribe = sql.SQL("select {}.subscribe('g', 'e.topic like ''t%'' ')").format(sql.Identifier(schema))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="conditions on more than topics are refused"):
            admin.execute(subscribe)
        uninstall(admin, schema)


def test_a_newer_schema_is_refused(empty: str) -> None:
    with psycopg.connect(empty) as connection:
        install(connection)
        connection.execute("insert into headgate.migrations (name) values ('99.0.0_01_pre_wonders')")
        with pytest.raises(StateError, match=r"99\.0\.0_01_pre_wonders"):
            install(connection)


def test_old_programs_survive_the_first_phase(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before a removal is run first; the removal, and all after it, when old programs have ended."""
    (tmp_path / "sql").mkdir()
    for name in migrations():
        (tmp_path / "sql" / f"{name}.sql").write_bytes((SQL / f"{name}.sql").read_bytes())
    with psycopg.connect(empty, autocommit=True) as connection:
        install(connection)
        later = {
            "0.2.0_01_pre_add": "create function publish_v2() returns int language sql as 'select 2'",
            "0.2.0_02_post_remove": "drop function unsubscribe_v1(int) cascade",
            "0.10.0_01_pre_more": "create function publish_v3() returns int language sql as 'select 3'",
        }
        for name, text in later.items():
            (tmp_path / "sql" / f"{name}.sql").write_text(text)
        monkeypatch.setattr(resources, "files", lambda _: tmp_path)
        assert install(connection, phase=Phase.PRE) == ["0.2.0_01_pre_add"]
        connection.execute("select headgate.unsubscribe_v1(7), headgate.publish_v2()")
        assert install(connection) == ["0.2.0_02_post_remove", "0.10.0_01_pre_more"]
        with pytest.raises(psycopg.errors.UndefinedFunction):
            connection.execute("select headgate.unsubscribe_v1(7)")
