"""Who may do what: every column and every function as each role, compared with a table of what is allowed.

And what somebody who wants more would try: to write a condition that runs with others' rights, to forge what decides
about delivery, and to wait for a dump to be restored by a superuser.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.broker import install
from tests.integration.broker.servers import another_like, every_server
from tests.servers import programs_of, running_server

pytestmark = every_server
SEARCH = "-c search_path=headgate,pg_temp"
DENIED = psycopg.errors.InsufficientPrivilege
Session = psycopg.Connection[Any]
Open = Callable[[str], Session]

PUBLISHER = {
    "begin_writing_v1", "cancel", "cancel_v1", "create_event_id", "end_writing_v1", "publish", "publish_many",
    "publish_once", "publish_once_v1", "publish_v1", "schedule_v1", "send", "send_many", "send_v1",
}  # fmt: skip
OBSERVER = {"broker_status", "broker_status_v1", "config_value", "group_status_v1", "next_positions"}
CONSUMER = PUBLISHER | OBSERVER | {
    "bury_v1", "bury_v2", "commit_stream_v1", "declare_handlers_v1", "group_cursor", "has_handler_elsewhere_v1",
    "heartbeat_v1", "hold_group_v1", "is_alive", "leave_v1", "maintain", "note_live_v1", "read_live_v1",
    "read_stream_v2", "resume_history_v1", "resume_stream_v2", "retry_v2", "server_history",
    "maintain_events_table", "maintain_v1", "open_stream_v1", "plan_stream_v1", "poll_for_events", "poll_for_events_v1",
    "read_next_events", "read_next_events_v1", "read_stream_v1", "redrive", "redrive_v1", "release_group_v1",
    "resume_stream_v1", "resume_subscription", "resume_subscription_v1", "retry_v1", "seek", "seek_v1",
    "set_group_cursor", "set_group_cursor_v1", "slot_of", "subscribe", "subscribe_v1", "unsubscribe", "unsubscribe_v1",
}  # fmt: skip
FUNCTIONS = {"publisher": PUBLISHER, "consumer": CONSUMER, "observer": OBSERVER, "nobody": set[str]()}

_EVENT = {"metadata", "payload", "subscription_id", "topic"}
# Of each table, what may be done with which columns; "*" is all of them.
PUBLISHER_COLUMNS = {
    ("insert", "events"): _EVENT,
    ("insert", "events_door"): _EVENT | {"id"},
    ("select", "events"): {"id"},
    ("select", "config"): {"*"},
    ("select", "migrations"): {"*"},
}
COLUMNS: dict[str, dict[tuple[str, str], set[str]]] = {
    "nobody": {},
    "publisher": PUBLISHER_COLUMNS,
    "consumer": PUBLISHER_COLUMNS
    | {
        ("select", "clients"): {"*"},
        ("insert", "clients"): {"id"},
        ("delete", "clients"): {"*"},
        ("select", "subscriptions"): {"id", "group_id", "gno", "expired_at"},
        ("select", "subscription_groups"): {"id", "gno", "overrun_from", "overrun_to", "seeks"},
        ("select", "dispatcher_state"): {"id", "pos", "system_id", "timeline"},
        ("select", "group_status"): {"*"},
    },
    "observer": {
        ("select", name): {"*"}
        for name in (
            "archived_events", "subscription_patterns",
            "batches", "client_subscriptions", "clients", "conditions", "config", "dead_letters", "deliveries",
            "dispatcher_state", "event_keys", "events", "group_cursors", "group_status", "histories", "log_readers",
            "migrations", "parked", "parked_subscriptions", "partitions", "rejected", "scheduled", "streams",
            "subscription_activity",
            "subscription_events", "subscription_failures", "subscription_groups", "subscription_status",
            "subscription_topics", "subscriptions", "unread_events", "webhook_status", "writers",
        )
    },
}  # fmt: skip


@pytest.fixture
def roles(db: Session) -> Iterator[dict[str, str]]:
    """A role of each part, and one that was granted nothing."""
    names = {part: f"{part}_{uuid4().hex[:12]}" for part in ("publisher", "consumer", "observer", "nobody")}
    for part, name in names.items():
        db.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        if part != "nobody":
            db.execute("select grant_usage(%s, to_role => %s)", [part, name])
    yield names
    for name in names.values():
        db.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        db.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def as_part(database: str, roles: dict[str, str]) -> Iterator[Open]:
    with ExitStack() as opened:

        def open_session(part: str) -> Session:
            url = make_conninfo(database, user=roles[part])
            return opened.enter_context(psycopg.connect(url, autocommit=True, options=SEARCH))

        yield open_session


def is_denied(session: Session, statement: sql.SQL | sql.Composed) -> bool:
    """Whether rights are missing; what happens otherwise is undone and does not matter."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement)
    except DENIED as error:
        return "permission denied" in str(error)
    except psycopg.Error:
        return False
    return False


def arguments_of(db: Session) -> list[tuple[str, list[str]]]:
    rows = db.execute(
        "select p.proname, array(select case when t.typelem <> 0 and t.typcategory = 'A' then (select"
        " format('%I.%I[]', x.typnamespace::regnamespace, x.typname) from pg_type as x where x.oid = t.typelem)"
        " else format('%I.%I', t.typnamespace::regnamespace, t.typname) end"
        " from unnest(p.proargtypes) with ordinality as a(oid, ord) join pg_type as t on t.oid = a.oid order by a.ord)"
        " from pg_proc as p where p.pronamespace = 'headgate'::regnamespace and p.prokind = 'f'"
        " and p.prorettype <> 'trigger'::regtype order by 1"
    )
    return [(name, types) for name, types in rows]


@pytest.mark.parametrize("part", FUNCTIONS)
def test_functions_of_a_part(db: Session, as_part: Open, part: str) -> None:
    session = as_part(part)
    session.execute("set statement_timeout = '5s'")
    allowed = set()
    for name, types in arguments_of(db):
        values = sql.SQL(", ").join(
            sql.SQL("null::int" if kind == "pg_catalog.anyelement" else f"null::{kind}") for kind in types
        )
        call = sql.SQL("select headgate.{}({})").format(sql.Identifier(name), values)
        if not is_denied(session, call):
            allowed.add(name)
    assert allowed == FUNCTIONS[part]


@pytest.mark.parametrize("part", COLUMNS)
def test_columns_of_a_part(db: Session, as_part: Open, part: str) -> None:
    """Read, write, change and delete each column of each table and view, and compare."""
    session = as_part(part)
    columns = db.execute(
        "select c.relname, c.relkind = 'v', array_agg(a.attname::text)"
        " from pg_class as c join pg_attribute as a on a.attrelid = c.oid"
        " where c.relnamespace = 'headgate'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0"
        " and not a.attisdropped and c.relname !~ '_[0-9]+$' group by 1, 2"
    ).fetchall()
    assert len(columns) > 30
    found: dict[tuple[str, str], set[str]] = {}
    for table, is_view, names in columns:
        of = sql.Identifier("headgate", table)
        if not is_view and not is_denied(session, sql.SQL("delete from {} where false").format(of)):
            found["delete", table] = {"*"}
        for name in names:
            column = sql.Identifier(name)
            tries = {
                "select": sql.SQL("select {} from {} limit 0").format(column, of),
                "insert": sql.SQL("insert into {} ({}) overriding system value values (null)").format(of, column),
                "update": sql.SQL("update {} set {} = default where false").format(of, column),
            }
            for privilege, statement in tries.items():
                if is_view and privilege != "select":
                    continue  # there is none that could be written to
                if not is_denied(session, statement):
                    found.setdefault((privilege, table), set()).add(name)
    every = {table: set(names) for table, _, names in columns}
    expected = {
        (privilege, table): names if names == {"*"} and privilege == "delete" else
        (every[table] if names == {"*"} else names)
        for (privilege, table), names in COLUMNS[part].items()
    }  # fmt: skip
    assert found == expected


def test_nobody_writes_a_condition(db: Session, as_part: Open, roles: dict[str, str]) -> None:
    """Whoever may write the text that another's rights execute has these rights."""
    consumer = as_part("consumer")
    consumer.execute("select subscribe('g', 'e.topic like ''t%'' ')")
    grab = sql.SQL("headgate.publish('owned', '1') is not null")
    for statement in (
        sql.SQL("update headgate.conditions set expression = {}").format(sql.Literal(grab.as_string())),
        sql.SQL("insert into headgate.conditions (source, source_key, expression) values ('x', 'x', 'true')"),
        sql.SQL("insert into headgate.subscriptions (group_id) values ('h')"),
        sql.SQL("update headgate.subscriptions set cond_id = 1"),
        sql.SQL("select headgate.understood('true')"),
        sql.SQL("select headgate.evaluate_v1('{1}', '{1}', null, '{}')"),
        sql.SQL("create or replace function headgate.evaluate_v1() returns int language sql as 'select 1'"),
        sql.SQL("select headgate.match_events('{1}', '{1}', '{}')"),
        sql.SQL("delete from headgate.dispatcher_state"),
        sql.SQL("alter role {} superuser").format(sql.Identifier(roles["consumer"])),
    ):
        with pytest.raises(DENIED):
            consumer.execute(statement)
    with pytest.raises((DENIED, psycopg.errors.InvalidParameterValue)):
        consumer.execute("select subscribe('g', %s)", [grab.as_string()])


def test_a_consumer_does_not_say_what_time_it_is(db: Session, as_part: Open) -> None:
    """Maintenance for next year would expire and drop everything."""
    db.execute("select subscribe('g', 'e.topic = ''t'' ', '{}', interval '1 day')")
    consumer = as_part("consumer")
    consumer.execute("select maintain()")
    for at in ("now() + interval '1 year'", "now() - interval '1 year'", "'infinity'"):
        with pytest.raises((DENIED, psycopg.errors.InvalidParameterValue)):
            consumer.execute(f"select maintain({at})".encode())
    assert db.execute("select count(*) from subscriptions where expired_at is null").fetchall() == [(1,)]


def test_a_publisher_forges_nothing(db: Session, as_part: Open) -> None:
    """Not the transaction that decides what is new, not the id that is next, not another's events."""
    db.execute("select subscribe('g', 'e.topic = ''t'' ')")
    publisher = as_part("publisher")
    publisher.execute("insert into events (topic, payload) values ('t', '1') returning id")
    for column, value in (("xid", "'3'"), ("id", "900"), ("at", "now()"), ("retry", "'{}'")):
        with pytest.raises(DENIED):
            publisher.execute(f"insert into events (topic, payload, {column}) values ('t', '2', {value})".encode())
    for statement in ("select payload from events", "select setval('event_ids', 1)", "select * from scheduled"):
        with pytest.raises(DENIED):
            publisher.execute(statement.encode())
    publisher.execute("insert into events_door (id, topic, payload) values (create_event_id(now()), 't', '3')")
    publisher.execute("insert into events_door (id, topic, payload) values (77, 't', '4')")
    publisher.execute("select publish('t', '5')")
    db.execute("select poll_for_events()")
    db.execute("select poll_for_events()")
    found = db.execute("select payload from read_next_events('g')").fetchall()
    assert sorted(payload for (payload,) in found) == [1, 3, 4, 5]


def test_scheduled_events_are_cancelled_by_their_maker(db: Session, as_part: Open) -> None:
    mine, others = as_part("publisher"), as_part("consumer")
    ids = [mine.execute("select publish('t', '1', due_at => now() + interval '1 h')").fetchall()[0][0] for _ in "ab"]
    assert others.execute("select cancel(%s)", [ids]).fetchall() == []
    assert mine.execute("select cancel(%s)", [[ids[0], 999]]).fetchall() == [(ids[0],)]
    assert db.execute("select cancel(%s)", [ids]).fetchall() == [(ids[1],)]


def test_a_writers_place_is_its_own(db: Session, as_part: Open) -> None:
    mine, others = as_part("publisher"), as_part("consumer")
    mine.execute("select begin_writing_v1('w', array['t'])")
    mine.execute("select end_writing_v1('w', array['t'], array['5'])")
    for statement in ("begin_writing_v1('w', array['t', 'u'])", "end_writing_v1('w', array['t'], array['9'])"):
        with pytest.raises(DENIED, match="the writer w is of the role"):
            others.execute(f"select {statement}".encode())
    assert db.execute("select topic, last_id from writers").fetchall() == [("t", "5")]


def test_a_consumer_has_the_groups_it_was_granted(db: Session, as_part: Open, roles: dict[str, str]) -> None:
    db.execute("select grant_usage('consumer', %s, array['mine'])", [roles["consumer"]])
    other = db.execute("select subscribe('theirs')").fetchall()[0][0]
    db.execute("select publish('t', '1')")
    db.execute("select poll_for_events()")
    db.execute("select bury_v1(%s, 'h', array[1]::bigint[], 1, 'no')", [other])
    session = as_part("consumer")
    sid = session.execute("select subscribe('mine', 'e.topic = ''t'' ')").fetchall()[0][0]
    for statement in (
        "select subscribe('theirs', 'e.topic = ''t'' ')",
        f"select unsubscribe({other})",
        f"select leave_v1('me', {other})",
        f"select resume_subscription({other})",
        "select * from read_next_events('theirs')",
        "select * from read_next_events('theirs', peek => true)",
        "select set_group_cursor('theirs', 1)",
        "select seek('theirs', 0)",
        "select hold_group_v1('theirs', 'me')",
        "select release_group_v1('theirs', 'me')",
        "select read_live_v1('theirs', 0, 10, null)",
        "select read_stream_v1('theirs', 0, 10)",
        "select note_live_v1('theirs', 1, server_history())",
        "select open_stream_v1(array['t'], '1 hour')",
        f"select retry_v1({other}, 'h', array[1]::bigint[], 2, 'no', '1 s')",
        f"select bury_v1({other}, 'h', array[1]::bigint[], 2, 'no')",
        "select redrive(array[1])",
    ):
        with pytest.raises(DENIED, match="is not one of"):
            session.execute(statement.encode())
    session.execute("select publish('t', '2')")
    session.execute("select poll_for_events()")
    found = session.execute("select payload, next_cursor from read_next_events('mine')").fetchall()
    assert [payload for payload, _ in found] == [2]
    session.execute("select set_group_cursor('mine', %s)", [found[0][1]])
    assert session.execute("select unsubscribe(%s)", [sid]).fetchall() == [(True,)]


def test_a_consumer_gets_no_others_events_by_failing_on_them(db: Session, as_part: Open, roles: dict[str, str]) -> None:
    """What was sent to a subscription of another group is neither tried again nor put aside for one's own."""
    db.execute("select grant_usage('consumer', %s, array['mine'])", [roles["consumer"]])
    other = db.execute("select subscribe('theirs', 'e.topic = ''none'' ')").fetchall()[0][0]
    session = as_part("consumer")
    sid = session.execute("select subscribe('mine', 'e.topic = ''t'' ')").fetchall()[0][0]
    secret = db.execute("select send(%s, 'x', '\"secret\"')", [other]).fetchall()[0][0]
    mine = db.execute("select send(%s, 'x', '\"mine\"')", [sid]).fetchall()[0][0]
    db.execute("select poll_for_events()")
    ids = [secret, mine]
    assert session.execute("select retry_v1(%s, 'h', %s, 2, 'no', '0 s')", [sid, ids]).fetchall() == [(1,)]
    session.execute("select bury_v1(%s, 'h', %s, 2, 'no')", [sid, ids])
    assert db.execute("select payload from dead_letters").fetchall() == [("mine",)]
    for _ in range(2):
        session.execute("select poll_for_events()")
    found = session.execute("select payload, retry is not null from read_next_events('mine')").fetchall()
    assert found == [("mine", False), ("mine", True)]


def copy_to(server: str, source: str, target: str) -> str:
    """What pg_dump and pg_restore do by default; what they complained about."""
    binaries = programs_of(server)
    dumped = subprocess.run([binaries / "pg_dump", "-Fc", "-d", source], check=True, capture_output=True).stdout
    done = subprocess.run([binaries / "pg_restore", "-d", target], input=dumped, capture_output=True, check=False)
    return done.stderr.decode()


def test_a_restored_dump_gives_nobody_rights(
    db: Session, database: str, as_part: Open, roles: dict[str, str], tmp_path: Path
) -> None:
    """Into a cluster without the role of conditions, by a superuser: all functions are theirs."""
    server = another_like(db.info.server_version // 10000)
    as_part("consumer").execute("select subscribe('g', 'e.topic like ''t%'' ')")
    db.execute("select subscribe('plain', 'e.topic = ''t'' ')")
    db.execute("select publish('t', '1')")
    with running_server(server, tmp_path) as other:
        with psycopg.connect(other, autocommit=True) as admin:
            admin.execute(sql.SQL("create role {} login").format(sql.Identifier(roles["consumer"])))
        said = copy_to(server, database, other)
        assert "headgate_conditions" in said
        with psycopg.connect(other, autocommit=True, options=SEARCH) as admin:
            owner = admin.execute(
                "select proowner::regrole::text from pg_proc where proname = 'evaluate_v1'"
            ).fetchall()
            assert owner == [(conninfo_to_dict(other)["user"],)]
            admin.execute("select rebase()")
            # A condition that a hostile hand had put there is not run by whoever restored it.
            admin.execute("update conditions set expression = 'pg_notify(''x'', ''y'') is not null' where evaluated")
            admin.execute("select poll_for_events()")
            admin.execute("select poll_for_events()")
            assert admin.execute("select payload from read_next_events('plain')").fetchall() == [(1,)]
            assert admin.execute("select payload from read_next_events('g', peek => true)").fetchall() == []
            (problem,) = admin.execute("select problem from broker_status()").fetchall()[0]
            assert "conditions are not run" in problem
            admin.execute("select grant_usage('consumer', %s)", [roles["consumer"]])
        url = make_conninfo(other, user=roles["consumer"])
        with psycopg.connect(url, autocommit=True, options=SEARCH) as consumer:
            with pytest.raises(DENIED, match="refused: evaluate_v1 belongs to"):
                consumer.execute("select subscribe('g', 'e.topic like ''u%'' ')")
            with pytest.raises(DENIED):
                consumer.execute("update conditions set expression = 'true'")
        with psycopg.connect(other, autocommit=True, options=SEARCH) as admin:
            admin.execute("update conditions set expression = '(e.topic ~~ ''t%''::text)' where evaluated")
            assert admin.execute("select set_conditions_role()").fetchall() == [(None,)]
            admin.execute("select resume_subscription(subscription_id) from parked")
            for _ in range(2):
                admin.execute("select poll_for_events()")
            assert admin.execute("select payload from read_next_events('g')").fetchall() == [(1,)]


def test_an_upgrade_turns_old_rights_into_new_ones(database: str, db: Session, roles: dict[str, str]) -> None:
    """Whoever could write every table by 0.2 has what a consumer has now."""
    name = sql.Identifier(roles["nobody"])
    for grant in (
        "grant usage on schema headgate to {}",
        "grant select on all tables in schema headgate to {}",
        "grant insert, update, delete on conditions, deliveries, dispatcher_state, scheduled to {}",
        "grant insert, select on events to {}",
    ):
        db.execute(sql.SQL(grant).format(name))
    db.execute("delete from migrations where name like '0.3.0_90%'")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("drop function headgate.functions_of, headgate.columns_of, headgate.secure_functions,"
            " headgate.grant_usage(text, name, text[])")  # fmt: skip
        install(connection)
    with psycopg.connect(make_conninfo(database, user=roles["nobody"]), autocommit=True, options=SEARCH) as session:
        session.execute("select subscribe('g')")
        for statement in ("update conditions set expression = 'true'", "select payload from events",
            "delete from dispatcher_state"):  # fmt: skip
            with pytest.raises(DENIED):
                session.execute(statement.encode())


def test_publishing_takes_nothing_from_the_callers_search_path(db: Session) -> None:
    """Which no setting hides from these functions: they name what they need, and pay for no setting at every call."""
    db.execute("create schema other")
    db.execute("create table other.events (topic text, payload jsonb, metadata jsonb, id bigint default -1)")
    for kind in ("text", "jsonb"):
        statement = "create function other.unnest({0}[]) returns setof {0} language sql as 'select null::{0}'"
        db.execute(statement.format(kind).encode())
    db.execute("set search_path = other, pg_catalog")
    db.execute("select headgate.publish('one', '1')")
    db.execute("select headgate.publish('later', '2', due_at => now())")
    db.execute("select headgate.publish_many(array['three', 'four'], array['3', '4']::jsonb[])")
    assert db.execute("select from other.events").fetchall() == []
    found = db.execute("select topic from headgate.events union all select topic from headgate.scheduled").fetchall()
    assert found == [("one",), ("three",), ("four",), ("later",)]
    settings = db.execute(
        "select proname from pg_proc where pronamespace = 'headgate'::regnamespace and proconfig is not null"
        " and proname in ('publish', 'publish_v1', 'publish_many')"
    )
    assert settings.fetchall() == []
