"""From one version to the next while programs of the old one go on; and what the new one brings in SQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate import broker
from headgate.broker import install, migrations
from tests.gateway.servers import new_database
from tests.integration.broker.servers import every_server

SQL = Path(str(resources.files(broker).joinpath("sql")))
SEARCH = "-c search_path=headgate,pg_temp"


def install_version(url: str, version: str) -> None:
    """What a release of the past installed."""
    with psycopg.connect(url, options="-c client_min_messages=warning") as connection:
        connection.execute("create schema headgate")
        connection.execute("set search_path = headgate, pg_temp")
        connection.execute("create table migrations (name text primary key, applied_at timestamptz default now())")
        for name in migrations():
            if tuple(map(int, name.split("_")[0].split("."))) <= tuple(map(int, version.split("."))):
                connection.execute((SQL / f"{name}.sql").read_bytes())
                connection.execute("insert into migrations (name) values (%s)", [name])


@every_server
def test_an_upgrade_under_load_is_not_noticed(template: tuple[str, str]) -> None:
    """Publishers, a dispatcher and a reader of the old version: no error, nothing lost, nothing twice, in order."""
    over = threading.Event()
    started = threading.Barrier(5)
    with new_database(template[0]) as url:
        install_version(url, "0.1.0")

        def publish(who: int) -> int:
            with psycopg.connect(url, autocommit=True, options=SEARCH) as session:
                session.execute("select publish_v1(array['t'], array[to_jsonb(array[%s, 0])])", [who])
                started.wait(30)
                count = 1
                while not over.is_set():
                    session.execute("select publish_v1(array['t'], array[to_jsonb(array[%s, %s])])", [who, count])
                    count += 1
                return count

        def read() -> list[list[int]]:
            seen: list[list[int]] = []
            with psycopg.connect(url, autocommit=True, options=SEARCH) as session:
                started.wait(30)
                while True:
                    ending = over.is_set()
                    session.execute("select poll_for_events_v1()")
                    query = "select payload, pos from read_next_events_v1('g', null, 100, false, 'me')"
                    found = session.execute(query).fetchall()
                    seen += [payload for payload, _ in found]
                    if found:
                        session.execute("select set_group_cursor_v1('g', %s, false, 'me', null)", [found[-1][1]])
                    elif ending:
                        return seen

        with psycopg.connect(url, autocommit=True, options=SEARCH) as session:
            session.execute("select subscribe_v1('g', 'true', '{}', null, null)")
        with ThreadPoolExecutor(4) as pool:
            publishing = [pool.submit(publish, who) for who in range(3)]
            reading = pool.submit(read)
            started.wait(30)
            try:
                with psycopg.connect(url, autocommit=True) as session:
                    done = install(session)
                    session.execute("select headgate.maintain()")
            finally:
                over.set()
            counts = [each.result(60) for each in publishing]
            seen = reading.result(60)
    assert done == [name for name in migrations() if not name.startswith("0.1.0")]
    for who, count in enumerate(counts):
        assert [n for by, n in seen if by == who] == list(range(count))


@pytest.fixture
def role(db: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"program_{uuid4().hex[:12]}"
    db.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    yield name
    db.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    db.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def as_role(url: str, role: str) -> psycopg.Connection[Any]:
    return psycopg.connect(make_conninfo(url, user=role), autocommit=True, options=SEARCH)


def refused(session: psycopg.Connection[Any], statement: str) -> bool:
    try:
        session.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def test_a_publisher_publishes_and_no_more(db: psycopg.Connection[Any], database: str, role: str) -> None:
    with as_role(database, role) as session:
        assert refused(session, "select headgate.publish('t', '1')")
        db.execute("select grant_usage('publisher', to_role => %s)", [role])
        session.execute("select publish('t', '1')")
        session.execute("select publish('t', '2', due_at => now() + interval '1 hour')")
        session.execute("select publish_once('t', 'key', '3')")
        session.execute("insert into events_door (id, topic, payload) values (create_event_id(now()), 't', '4')")
        session.execute("select send(%s, 't', '5')", [db.execute("select subscribe('g')").fetchall()[0][0]])
        assert install(session) == []
        for statement in (
            "select subscribe('mine')",
            "select poll_for_events()",
            "delete from events",
            "update events set payload = '0'",
            "update config set value = '1 minute'",
            "select maintain()",
            "select push_table_mutations('config')",
        ):
            assert refused(session, statement), statement


def test_a_consumer_consumes_and_owns_nothing(db: psycopg.Connection[Any], database: str, role: str) -> None:
    db.execute("select grant_usage('consumer', to_role => %s)", [role])
    with as_role(database, role) as session:
        (sid,) = session.execute("select subscribe('mine', client_id => 'me')").fetchall()[0]
        session.execute("select publish('t', '1')")
        session.execute("select publish('t', '2', due_at => now())")
        session.execute("select poll_for_events()")
        session.execute("select poll_for_events()")
        found = session.execute("select id, payload, pos from read_next_events('mine', owner => 'me')").fetchall()
        assert [payload for _, payload, _ in found] == [1, 2]
        session.execute("select set_group_cursor('mine', %s, true, 'me')", [found[-1][2]])
        session.execute("select retry_v1(%s, 'h', array[%s]::bigint[], 2, 'no', interval '0')", [sid, found[0][0]])
        session.execute("select bury_v1(%s, 'h', array[%s]::bigint[], 3, 'no')", [sid, found[0][0]])
        session.execute("select heartbeat_v1('me')")
        assert session.execute("select created from maintain(now() + interval '50 minutes')").fetchall() > [(0,)]
        assert session.execute("select behind from group_status").fetchall() == [(0,)]
        for statement in ("update config set value = '1 minute'", "drop table events", "delete from events"):
            assert refused(session, statement), statement


def test_an_observer_looks(db: psycopg.Connection[Any], database: str, role: str) -> None:
    db.execute("select grant_usage('observer', to_role => %s)", [role])
    db.execute("select subscribe('g')")
    with as_role(database, role) as session:
        assert session.execute("select group_id from group_status").fetchall() == [("g",)]
        assert refused(session, "select publish('t', '1')")
        assert refused(session, "select secret from webhooks")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no part boss"):
        db.execute("select grant_usage('boss', to_role => %s)", [role])


OLD_CONSUMER = (
    "select subscribe_v1('g', 's.params @> jsonb_build_object(''topic'', e.topic)', '{\"topic\": \"t\"}', '1 h', 'me')",
    "select heartbeat_v1('me'), (select id from clients where last_active_at > now() - interval '1 h' limit 1)",
    "insert into clients (id) values ('you') on conflict do nothing returning 1",
    "delete from clients where id = 'you' returning 1",
    "select gno from subscription_groups where id = 'g'",
    "select id from subscriptions where id = any (array[1]) and expired_at is null limit 1",
    "select publish_v1(array['t'], array['1']::jsonb[])",
    "select dispatched, more from poll_for_events_v1()",
    "select hold_group_v1('g', 'me')",
    "select * from read_next_events_v1('g', null, 10, false, 'me')",
    "select retry_v1(1, 'h', array[1]::bigint[], 2, 'no', '1 s')",
    "select bury_v1(1, 'h', array[1]::bigint[], 2, 'no')",
    "select set_group_cursor_v1('g', 1, false, 'me', null)",
    "select release_group_v1('g', 'me')",
    "select group_cursor(gno) from subscription_groups where id = 'g'",
    "select max(n.pos) from subscription_groups as g, next_positions(g.gno, greatest(0, g.overrun_to), 5) as n",
    "select pos from dispatcher_state order by id desc limit 1",
    "select 1 from maintain_v1()",
    "select leave_v1('me', 1)",
    "select behind from group_status",
)
OLD_PUBLISHER = (
    "insert into events (topic, payload, metadata) select 't', to_jsonb(n), null from generate_series(1, 3) as n",
    "select schedule_v1(array[now()], array['t'], array['1']::jsonb[])",
    "select publish_once_v1('t', 'key', '{}')",
    "select topic, last_id from begin_writing_v1('w', array['t'])",
    "select end_writing_v1('w', array['t'], array['1'])",
)


@every_server
def test_programs_of_0_2_go_on_with_what_they_were_granted(template: tuple[str, str]) -> None:
    """What its clients, its source and its destination ask of the server, after the upgrade and without new grants."""
    roles = {part: f"{part}_{uuid4().hex[:12]}" for part in ("consumer", "publisher")}
    with new_database(template[0]) as url:
        install_version(url, "0.2.0")
        with psycopg.connect(url, autocommit=True, options=SEARCH) as admin:
            for part, role in roles.items():
                admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
                admin.execute("select grant_usage(%s, to_role => %s)", [part, role])
            try:
                install(admin)
                for part, statements in (("consumer", OLD_CONSUMER), ("publisher", OLD_PUBLISHER)):
                    with as_role(url, roles[part]) as session:
                        for statement in statements:
                            session.execute(statement.encode())
                        assert refused(session, "update conditions set expression = 'true'")
                        assert refused(session, "select payload from events")
            finally:
                for role in roles.values():
                    admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
                    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_changes_of_a_table_become_events(db: psycopg.Connection[Any]) -> None:
    db.execute("create table public.users (id int primary key, name text, note text)")
    db.execute("select push_table_mutations('public.users')")
    db.execute("select push_table_mutations('public.users')")
    db.execute("insert into public.users values (1, 'ann', null), (2, 'bob', 'x')")
    db.execute("update public.users set name = upper(name), note = null")
    db.execute("update public.users set note = note")
    db.execute("delete from public.users where id = 2")
    db.execute("select stop_table_mutations_push('public.users')")
    db.execute("insert into public.users values (3, 'cid', null)")
    found = db.execute("select topic, payload, metadata from events where id > 0 order by id").fetchall()
    assert found == [
        ("public.users.insert", {"id": 1, "name": "ann"}, None),
        ("public.users.insert", {"id": 2, "name": "bob", "note": "x"}, None),
        ("public.users.update", {"name": "ANN"}, {"old": {"id": 1, "name": "ann"}}),
        ("public.users.update", {"name": "BOB", "note": None}, {"old": {"id": 2, "name": "bob", "note": "x"}}),
        ("public.users.delete", {"id": 2, "name": "BOB"}, None),
    ]


def test_a_change_that_is_rolled_back_is_no_event(db: psycopg.Connection[Any]) -> None:
    db.execute("create table public.users (id int primary key)")
    db.execute("select push_table_mutations('public.users', delete => false)")
    db.execute("begin")
    db.execute("insert into public.users values (1)")
    db.execute("rollback")
    db.execute("insert into public.users values (2)")
    db.execute("delete from public.users")
    assert db.execute("select payload from events where id > 0").fetchall() == [({"id": 2},)]
