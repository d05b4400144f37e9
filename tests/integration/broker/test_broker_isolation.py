"""One tenant's event, parameters, condition or scheduled row stops nobody but itself, and somebody is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from headgate.broker import BrokerClient, Message, Subscription
from tests.integration.broker.brokers import Broker, Headgate, drain
from tests.integration.broker.clients import Seen, running, until
from tests.integration.broker.clients import connect as open_session
from tests.integration.broker.conftest import Connect
from tests.integration.broker.servers import every_server

BY_NUMBER = "(e.payload ->> 'n')::int > (s.params ->> 'least')::int"
# Tens of milliseconds for an event: PostgreSQL makes a text of many megabytes and looks through it.
SLOW = "e.topic = 'slow' and strpos(repeat(e.topic, 200000 * (s.params ->> 'times')::int), 'x') = 0"
# Hours: back references make a regular expression try everything.
ENDLESS = "(repeat(left(e.topic, 1), 301) || 'b') ~ '^(s+)(s+)(s+)(s+)\\1\\2\\3\\4b$'"


def payloads(events: list[Any]) -> list[Any]:
    return [event.payload["n"] for event in events]


def test_bad_parameters_are_their_own_problem(ours: Broker) -> None:
    """Of two that share a condition's text."""
    ours.subscribe("good", BY_NUMBER, {"least": 3})
    bad = ours.subscribe("bad", BY_NUMBER, {"least": "none"})
    ours.publish(*[("t", {"n": number}) for number in range(6)])
    ours.poll()
    assert payloads(drain(ours, "good")) == [4, 5]
    assert drain(ours, "bad") == []
    letters = ours.db.execute("select subscription_id, event_id, error from dead_letters order by id").fetchall()
    assert [(sid, event) for sid, event, _ in letters] == [(bad, number) for number in range(1, 7)]
    assert letters[0][2] == 'the condition failed: invalid input syntax for type integer: "none"'
    status = ours.db.execute("select failures, failed_error from subscription_status where id = %s", [bad]).fetchall()
    assert status == [(6, 'invalid input syntax for type integer: "none"')]


def test_bad_events_go_to_dead_letters_and_back(ours: Broker) -> None:
    """To those of each subscription whose condition raised; redriven, to all handlers of it."""
    ids = [ours.subscribe(f"g{number}", BY_NUMBER, {"least": number}) for number in range(3)]
    ours.publish(("t", {"n": 1}), ("t", {"n": "bad"}), ("t", {"n": 5}))
    ours.poll()
    assert [payloads(drain(ours, f"g{number}")) for number in range(3)] == [[1, 5], [5], [5]]
    letters = ours.db.execute("select id, subscription_id, payload from dead_letters order by 2").fetchall()
    assert [(sid, payload) for _, sid, payload in letters] == [(sid, {"n": "bad"}) for sid in ids]
    assert ours.db.execute("select redrive(array[%s]::bigint[])", [letters[1][0]]).fetchall() == [(1,)]
    ours.poll()
    row = ours.db.execute("select payload, subscription_ids, retry from read_next_events('g1')").fetchall()
    assert row == [({"n": "bad"}, [ids[1]], None)]


def test_who_fails_too_often_is_parked(ours: Broker) -> None:
    ours.db.execute("update config set value = '10' where key = 'condition_failures'")
    bad = ours.subscribe("bad", BY_NUMBER, {"least": 3})
    ours.subscribe("good", "e.topic ~ 't'")
    ours.publish(*[("t", {"n": "x"}) for _ in range(25)])
    ours.publish(*[("t", {"n": number}) for number in range(6)])
    ours.poll()
    assert len(drain(ours, "good")) == 31
    assert ours.db.execute("select count(*) from dead_letters").fetchall() == [(10,)]
    parked = ours.db.execute("select subscription_id, group_id, event_id, next_pos, error from parked").fetchall()
    assert parked == [
        (bad, "bad", 10, 11, '10 events failed, the last with: invalid input syntax for type integer: "x"')
    ]
    problem = ours.db.execute("select parked, problem from broker_status()").fetchall()
    assert problem[0][0] == 1
    assert f"subscription {bad} of the group bad is parked" in problem[0][1]
    group = ours.db.execute("select parked, failures from group_status where group_id = 'bad'").fetchall()
    assert group == [(1, 10)]
    # Nothing is lost: resumed, it goes on where it was, and what came in between is there, once and in order.
    ours.publish(*[("t", {"n": number}) for number in range(6, 9)])
    ours.poll()
    ours.db.execute("update config set value = '1000' where key = 'condition_failures'")
    assert ours.db.execute("select resume_subscription(%s)", [bad]).fetchall() == [(True,)]
    ours.publish(("t", {"n": 9}))
    ours.poll()
    assert payloads(drain(ours, "bad")) == [4, 5, 6, 7, 8, 9]
    assert ours.db.execute("select count(*) from dead_letters").fetchall() == [(25,)]
    assert ours.db.execute("select problem from broker_status()").fetchall() == [(None,)]


def test_a_slow_subscription_is_parked_and_the_others_go_on(ours: Broker) -> None:
    slow = ours.subscribe("slow", SLOW, {"times": 100})
    quick = ours.subscribe("quick", SLOW, {"times": 0})
    ours.subscribe("good", "e.topic ~ 's'")
    for number in range(3):
        ours.publish(*[("slow", {"n": number}) for _ in range(2)])
        ours.poll()
    assert len(drain(ours, "good")) == 6
    assert len(drain(ours, "quick")) == 6
    parked = ours.db.execute("select subscription_id, error from parked").fetchall()
    assert [sid for sid, _ in parked] == [slow]
    assert parked[0][1].startswith("too slow:")
    assert quick not in [sid for sid, _ in parked]
    # What it has seen before it was parked, it has; the rest comes at its own pace, outside of the lock.
    ours.db.execute("select resume_subscription(%s)", [slow])
    ours.poll()
    assert len(drain(ours, "slow")) == 6


@pytest.mark.timeout(60)
def test_a_statement_timeout_stops_nobody_for_ever(ours: Broker, connect: Connect) -> None:
    """One event for which a condition takes longer than a poll may: found, parked and told, at the second poll."""
    slow = ours.subscribe("slow", ENDLESS)
    ours.subscribe("neighbour", "e.payload ? 'n'")
    ours.subscribe("good", "e.topic = 'slow' ")
    ours.publish(("slow", {"n": 1}))
    ours.db.execute("set statement_timeout = '1s'")
    for _ in range(6):
        try:
            ours.poll()
        except psycopg.errors.QueryCanceled:
            continue
    ours.db.execute("reset statement_timeout")
    assert len(drain(ours, "good")) == 1
    assert len(drain(ours, "neighbour")) == 1
    parked = ours.db.execute("select subscription_id, resuming from parked").fetchall()
    assert parked == [(slow, False)]


@pytest.mark.timeout(120)
def test_a_client_stops_an_endless_condition(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has set a timeout: the client tells the server to stop, the condition is parked, others go on."""
    monkeypatch.setattr("headgate.broker.duties.POLL_LIMIT_S", 1.0)

    async def story() -> None:
        async with BrokerClient(database, group="slow") as slow, BrokerClient(database, group="good") as good:
            never, seen = Seen(), Seen()
            await slow.register_reliable_handler(Subscription(ENDLESS), never, name="h")
            await good.register_reliable_handler(Subscription("e.topic = 'slow' "), seen, name="h")
            async with running(good):
                await good.publish(Message("slow", {"n": 1}))
                assert await seen.wait_for(1) == [{"n": 1}]
                async with await open_session(database) as db:
                    assert (await until(db, "select resuming from parked where not resuming")) == (False,)
            assert never.events == []

    asyncio.run(story())


def test_resuming_takes_no_lock_while_it_evaluates(ours: Broker, connect: Connect) -> None:
    """Another client dispatches meanwhile."""
    ours.db.execute("update config set value = '1' where key = 'condition_failures'")
    slow = ours.subscribe("slow", "case when e.payload ? 'bad' then 1 / (e.id - e.id) else strpos(repeat(e.topic,"
        " 2000000), 'x') end = 0")  # fmt: skip
    ours.publish(("t", {"bad": 1}))
    ours.poll()
    ours.publish(*[("t", {"n": number}) for number in range(100)])
    ours.poll()
    ours.db.execute("select resume_subscription(%s)", [slow])
    resuming = connect(autocommit=False)
    resuming.execute("select * from evaluate_parked()")  # and its transaction stays open
    started = time.monotonic()
    ours.publish(("t", {"n": 1000}))
    row = connect().execute("select dispatched from poll_for_events_v1()").fetchone()
    assert row == (1,)
    assert time.monotonic() - started < 10
    resuming.rollback()
    ours.poll()
    assert len(drain(ours, "slow")) == 101


@every_server
@pytest.mark.parametrize(
    "retry",
    [{"of": "x"}, {"of": 1, "handler": None, "attempt": 1}, {}, [], {"of": 1, "handler": "h", "attempt": 2}],
    ids=["text", "null-handler", "empty", "list", "without-subscription"],
)
def test_a_scheduled_row_that_cannot_be_an_event_is_set_aside(db: psycopg.Connection[Any], retry: Any) -> None:
    """Rows that a version before let in: today the table refuses them, too."""
    ours = Headgate(db)
    ours.subscribe("g", "e.topic = 't'")
    insert = "insert into scheduled (due_at, topic, payload, retry) values (now() - %s * interval '1 s', 't', %s, %s)"
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(insert, [1, Jsonb(1), Jsonb(retry)])
    for (name,) in db.execute(
        "select conname from pg_constraint where conrelid = 'scheduled'::regclass and contype = 'c'"
    ).fetchall():
        db.execute(f"alter table scheduled drop constraint {name}".encode())
    db.execute(insert, [3, Jsonb(1), None])
    db.execute(insert, [2, Jsonb("poison"), Jsonb(retry)])
    db.execute(insert, [1, Jsonb(2), None])
    ours.poll()
    ours.publish(("t", 3))
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == [1, 2, 3]
    rejected = db.execute("select payload, error from rejected").fetchall()
    assert rejected[0][0] == "poison"
    assert rejected[0][1].startswith("a retry names its event")
    assert (
        db.execute("select problem from broker_status()").fetchall()[0][0].startswith("a scheduled event was set aside")
    )


def test_a_missing_partition_sets_nothing_aside(ours: Broker) -> None:
    """It is no fault of the row, though the server calls it by the same name."""
    ours.subscribe("g", "e.topic = 't'")
    ours.schedule("t", 1, "-1 s")
    ours.db.execute("select setval('event_ids', (900::bigint << 32) + 5)")
    with pytest.raises(psycopg.errors.CheckViolation):
        ours.poll()
    assert ours.db.execute("select count(*) from scheduled").fetchall() == [(1,)]
    assert ours.db.execute("select count(*) from rejected").fetchall() == [(0,)]


def test_many_errors_at_once_hold_nobody_up(ours: Broker) -> None:
    """A condition of many subscriptions raises on every event: what does not fit into a second is evaluated later."""
    ours.db.execute(
        "select count(subscribe('g' || n, %s, jsonb_build_object('least', n))) from generate_series(1, 300) as n",
        [BY_NUMBER],
    )
    ours.subscribe("good", "e.topic ~ 't'")
    ours.publish(*[("t", {"n": "x"}) for _ in range(40)])
    started = time.monotonic()
    ours.db.execute("select poll_for_events_v1()")
    assert time.monotonic() - started < 20
    assert len(ours.read("good", peek=True)) > 0
    while ours.db.execute("select 1 from parked_subscriptions where resuming limit 1").fetchall():
        ours.db.execute("select poll_for_events_v1()")
    ours.poll()
    assert len(drain(ours, "good")) == 40
    assert ours.db.execute("select count(*) from dead_letters").fetchall() == [(300 * 40,)]
    assert ours.db.execute("select distinct count(*) from dead_letters group by subscription_id").fetchall() == [(40,)]


def test_matches_that_do_not_fit_into_memory_are_cut(ours: Broker) -> None:
    ours.db.execute(
        "select count(subscribe('g', 'e.id > 0 or s.id < 0', jsonb_build_object('n', n)))"
        " from generate_series(1, 300) as n"
    )
    ours.db.execute(
        "select count(publish_v1) from publish_v1((select array_agg('t'::text) from generate_series(1, 3000)),"
        " (select array_agg(to_jsonb(n)) from generate_series(1, 3000) as n))"
    )
    dispatched, more = ours.db.execute("select dispatched, more from poll_for_events_v1()").fetchall()[0]
    assert 0 < dispatched < 3000
    assert more
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == list(range(1, 3001))
