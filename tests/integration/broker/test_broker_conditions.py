"""Conditions: what may be one, what it is turned into, and as whom it is run."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.integration.broker.brokers import Broker, drain
from tests.integration.broker.conftest import Connect
from tests.integration.broker.servers import every_server

pytestmark = every_server

REFUSED = {
    "sleep": "pg_sleep(1) is not null",
    "sleep-in-cast": "(pg_sleep(1)::text = '') is null",
    "catalog": "exists (select from pg_class)",
    "subselect": "true) or (select true",
    "array-subselect": "array(select 1) is not null",
    "two-columns": "true), (true",
    "second-statement": "true) as x; delete from headgate.events; select (true",
    "quoted-second-statement": "e.topic = E'\\'' ; select '",
    "union": "true) union all select (true",
    "from": "true) as matches from pg_class as c, headgate.events as e, (select true as s) as s where (true",
    "where": "true) as matches from headgate.events as e cross join headgate.subscriptions as s where (true",
    "aggregate": "count(*) > 0",
    "window": "row_number() over () > 0",
    "set": "generate_series(1, 2) = 1",
    "set-config": "set_config('search_path', 'x', false) is not null",
    "setting": "current_setting('data_directory') is not null",
    "random": "random() > 0.5",
    "clock": "clock_timestamp() > e.at",
    "file": "pg_read_file('/etc/passwd') is not null",
    "xml": "table_to_xml('pg_class', true, true, '') is not null",
    "own-function": "public.mine()",
    "broker-function": "poll_for_events() > 0",
    "own-operator": "e.topic operator(public.<<<) 'x'",
    "own-type": "e.topic::public.word is not null",
    "no-boolean": "e.at",
    "unknown-column": "e.nothing = 1",
    "syntax": "e.topic = ",
    "comment-open": "true /*",
    "empty": "",
    "parameter": "$1",
    "long": "e.topic = '" + "x" * 10_000 + "'",
}


@pytest.fixture(scope="module")
def traps(shared_db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    shared_db.execute("create function public.mine() returns bool language sql immutable as 'select true'")
    shared_db.execute("create function public.lt(text, text) returns bool language sql immutable as 'select true'")
    shared_db.execute("create operator public.<<< (leftarg = text, rightarg = text, function = public.lt)")
    shared_db.execute("create domain public.word as text check (length(value) < 10)")
    return shared_db


@pytest.mark.parametrize("condition", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_condition(traps: psycopg.Connection[Any], condition: str) -> None:
    """H6b, and then some."""
    with pytest.raises(
        (
            psycopg.errors.InsufficientPrivilege,
            psycopg.errors.InvalidParameterValue,
            psycopg.errors.ProgramLimitExceeded,
        )
    ):
        traps.execute("select subscribe('g', %s)", [condition])
    assert traps.execute("select count(*) from conditions").fetchone() == (3,)
    views = traps.execute("select viewname from pg_views where schemaname = 'headgate' and viewname like 'condition%'")
    assert views.fetchall() == []


UNDERSTOOD = {
    "true": ("TRUE", "true", None),
    "comment": ("e.topic = 'a' -- and false", "(e.topic = 'a'::text)", "literal"),
    "literals": (
        "e.topic in ('it''s', 'b', 'b') and e.id > 0",
        "((e.topic = ANY (ARRAY['it''s'::text, 'b'::text, 'b'::text])) AND (e.id > 0))",
        "literal",
    ),
    "literal-or": ("e.topic = 'a' or e.topic = 'b'", "((e.topic = 'a'::text) OR (e.topic = 'b'::text))", None),
    "literal-and-or": (
        "e.topic = 'a' and e.id > 0 or true",
        "(((e.topic = 'a'::text) AND (e.id > 0)) OR true)",
        None,
    ),
    "backslash": ("e.topic = E'a\\\\b'", "(e.topic = 'a\\b'::text)", None),
    "topic": (
        "s.params @> jsonb_build_object('topic', e.topic)",
        "(s.params @> jsonb_build_object('topic', e.topic))",
        "topic",
    ),
    "topics": (
        "s.params @> jsonb_build_object('topics', array[e.topic]) and e.payload ? 'x'",
        "((s.params @> jsonb_build_object('topics', ARRAY[e.topic])) AND (e.payload ? 'x'::text))",
        "topics",
    ),
    "either": (
        "s.params @> jsonb_build_object('topic', e.topic) or e.payload ? 'x'",
        "((s.params @> jsonb_build_object('topic', e.topic)) OR (e.payload ? 'x'::text))",
        None,
    ),
    "not": (
        "not s.params @> jsonb_build_object('topic', e.topic)",
        "(NOT (s.params @> jsonb_build_object('topic', e.topic)))",
        None,
    ),
    "nested": (
        "(s.params @> jsonb_build_object('topic', e.topic) and true) or false",
        "(((s.params @> jsonb_build_object('topic', e.topic)) AND true) OR false)",
        None,
    ),
    "twice": (
        "s.params @> jsonb_build_object('topic', e.topic, 'topic', 'x')",
        "(s.params @> jsonb_build_object('topic', e.topic, 'topic', 'x'))",
        None,
    ),
    "slot": ("slot_of(e.payload ->> 'key', 4) = 1", "(slot_of((e.payload ->> 'key'::text), 4) = 1)", None),
}


@pytest.mark.parametrize(("source", "expression", "route"), UNDERSTOOD.values(), ids=UNDERSTOOD.keys())
def test_what_is_understood(
    shared_db: psycopg.Connection[Any], source: str, expression: str, route: str | None
) -> None:
    found = shared_db.execute("select understood(%s), route_of(understood(%s))", [source, source]).fetchone()
    assert found == (expression, route)


def test_conditions_are_run_by_a_role_that_may_read_four_tables(db: psycopg.Connection[Any]) -> None:
    """Even if one got past the checks."""
    db.execute("create table public.secret (n int)")
    db.execute(
        "insert into conditions (source, source_key, expression)"
        " values ('x', 'x', '(select n from public.secret) is null')"
    )
    db.execute("select subscribe('g')")
    db.execute("alter table subscriptions disable trigger user")
    db.execute("update subscriptions set cond_id = (select max(id) from conditions)")
    db.execute("update subscription_changes set gno = gno")
    db.execute("select publish('t', '{}')")
    db.execute("select poll_for_events()")
    row = db.execute("select error from dead_letters").fetchone()
    assert row == ("the condition failed: permission denied for table secret",)
    rights = db.execute(
        "select table_name, privilege_type from information_schema.role_table_grants"
        " where grantee = 'headgate_conditions' and table_schema = 'headgate' order by 1"
    ).fetchall()
    assert rights == [(name, "SELECT") for name in ("conditions", "events", "subscription_topics", "subscriptions")]
    assert db.execute("select has_schema_privilege('headgate_conditions', 'headgate', 'create')").fetchone() == (False,)


def test_a_subscription_of_a_table_row(db: psycopg.Connection[Any], ours: Broker) -> None:
    """A plain INSERT, as the first users of this design write it; the same one twice is refused."""
    insert = (
        "insert into subscriptions (group_id, conditions_sql, params) values ('my-unique-group-id',"
        " 's.params @> jsonb_build_object(''topic'', e.topic)', jsonb_build_object('topic', 'user.created'))"
    )
    db.execute(insert)
    ours.publish(("user.created", 1), ("user.deleted", 2))
    ours.poll()
    assert [event.payload for event in drain(ours, "my-unique-group-id")] == [1]
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(insert)


def test_equal_subscriptions_are_one(ours: Broker, connect: Connect) -> None:
    params = {"topics": ["a", "b"], "z": 1}
    condition = "s.params @> jsonb_build_object('topics', ARRAY[e.topic])"
    first = ours.subscribe("g", condition, params)
    assert ours.on(connect()).subscribe("g", condition, dict(reversed(params.items()))) == first
    assert ours.subscribe("other", condition, params) != first
    ours.publish(("a", 1), ("b", 2), ("c", 3))
    ours.poll()
    assert [(event.payload, event.subscriptions) for event in drain(ours, "g")] == [(1, (first,)), (2, (first,))]


def test_a_subscription_is_not_changed(ours: Broker) -> None:
    ours.subscribe("g")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        ours.db.execute("update subscriptions set params = '{\"x\": 1}'")


def test_all_that_match_are_named_once(ours: Broker) -> None:
    """One row for a group, in order of events, whatever the conditions."""
    ids = [ours.subscribe("g", condition) for condition in ("e.topic = 't'", "e.payload = '1'", "s.id > 0")]
    ours.publish(("t", 1), ("u", 1), ("t", 2), ("u", 2))
    ours.poll()
    a, b, c = ids
    assert [event.subscriptions for event in drain(ours, "g")] == [(a, b, c), (b, c), (a, c), (c,)]
