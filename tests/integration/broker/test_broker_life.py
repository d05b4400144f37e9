"""Whole lives: of a group that nobody reads, over weeks; of subscriptions that come and go beside each other; of rows
that only time makes worthless; of settings that are misspelt or gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.integration.broker.brokers import BY_TOPIC, Broker, Headgate, drain
from tests.integration.broker.conftest import Connect
from tests.integration.broker.servers import every_server


@every_server
@pytest.mark.parametrize("condition", ["true", "e.topic = 't'", "e.topic like 't%'"], ids=["all", "topic", "evaluated"])
def test_an_abandoned_group_holds_nothing_up_for_weeks(db: psycopg.Connection[Any], condition: str) -> None:
    """Partitions are made and dropped, the group is told what it has lost, and it reads on when somebody comes back."""
    ours = Headgate(db)
    ours.subscribe("abandoned", condition)
    ours.subscribe("healthy", "e.topic in ('t', 'u')")
    for number in range(21 * 4):  # three weeks, four times a day
        ours.publish(("t", number))
        ours.poll()
        assert [event.payload for event in drain(ours, "healthy")] == [number]
        db.execute("select maintain(now() + %s * interval '6 hours')", [number + 1])
        if number % 20 == 0:
            db.execute("select * from group_status").fetchall()
    for parent in ("events", "deliveries", "batches"):
        kept = db.execute("select count(*) from partitions where parent = %s", [parent]).fetchall()[0][0]
        assert 7 <= kept <= 60, (parent, kept)  # the seven days of max_lag, and those made ahead
    overrun = db.execute(
        "select overrun_from, overrun_to > 0, behind > 0 from group_status where group_id = 'abandoned'"
    ).fetchall()
    assert overrun == [(1, True, True)]
    gap = db.execute("select id, next_cursor from read_next_events('abandoned')").fetchall()
    assert gap[0][0] is None
    ours.ack("abandoned", gap[0][1])
    rest = [event.payload for event in drain(ours, "abandoned")]
    assert rest == list(range(rest[0], 84))
    assert 20 <= len(rest) <= 40
    ours.publish(("t", "new"))
    ours.poll()
    assert [event.payload for event in drain(ours, "abandoned")] == ["new"]


@pytest.mark.parametrize("cursor", [999_999_999_999, 2**62, 2**63 - 1, -1, -(2**40)])
def test_positions_that_nobody_has_break_nothing(ours: Broker, cursor: int) -> None:
    for group, condition in (("log", "true"), ("topic", "e.topic = 't'")):
        ours.subscribe(group, condition)
        ours.publish(("t", 1))
        ours.poll()
        ours.read(group, cursor=cursor, peek=True)
        ours.db.execute("select seek(%s, %s)", [group, cursor])
        ours.db.execute("select * from group_status").fetchall()
        ours.db.execute("select maintain()")
        expected = [2] if cursor > 0 else [1, 2]
        ours.publish(("t", 2))
        ours.poll()
        assert [event.payload for event in drain(ours, group)][-len(expected) :] == expected


def rounds(connect: Connect, work: list[Callable[[psycopg.Connection[Any]], Any]], seconds: float = 3) -> list[str]:
    """Do these beside each other, again and again; the errors."""
    over = threading.Event()
    sessions = [connect() for _ in work]

    def run(session: psycopg.Connection[Any], each: Callable[[psycopg.Connection[Any]], Any]) -> list[str]:
        errors = []
        while not over.is_set():
            try:
                each(session)
            except psycopg.Error as error:
                errors.append(f"{type(error).__name__}: {error}")
        return errors

    with ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(run, session, each) for session, each in zip(sessions, work, strict=True)]
        over.wait(seconds)
        over.set()
        return [error for each in running for error in each.result(60)]


@every_server
def test_subscribing_beside_the_end_of_the_same_subscription(db: psycopg.Connection[Any], connect: Connect) -> None:
    """Expiry, unsubscribing, a group that is taken for empty, a client that is taken for dead: no error for anybody."""
    subscribe = (
        "select subscribe('g', %s, jsonb_build_object('topic', 't' || (random() * 2)::int),"
        " make_interval(mins => 1 + (random() * 3)::int), 'client' || (random() * 2)::int)"
    )

    def join(session: psycopg.Connection[Any]) -> None:
        session.execute(subscribe, [BY_TOPIC])

    def end(session: psycopg.Connection[Any]) -> None:
        session.execute("select unsubscribe((select min(id) from subscriptions))")

    def leave(session: psycopg.Connection[Any]) -> None:
        session.execute("select leave_v1('client1', (select max(id) from subscriptions))")
        session.execute("select heartbeat_v1('client1')")

    def maintain(session: psycopg.Connection[Any]) -> None:
        session.execute("select maintain(now() + interval '2 hours')")
        session.execute("select maintain(now() + interval '30 days')")

    assert rounds(connect, [join, join, join, end, leave, maintain]) == []
    ours = Headgate(db)
    ours.subscribe("last", "e.topic = 't'")
    ours.publish(("t", 1))
    ours.poll()
    assert [event.payload for event in drain(ours, "last")] == [1]


def test_conditions_that_come_and_go(ours: Broker, connect: Connect) -> None:
    """A condition is forgotten when nobody uses it, and nobody who comes to use it loses it."""

    def come_and_go(session: psycopg.Connection[Any]) -> None:
        (sid,) = session.execute("select subscribe('g', 'e.id > ' || (random() * 3)::int)").fetchall()[0]
        session.execute("select unsubscribe(%s)", [sid])

    def maintain(session: psycopg.Connection[Any]) -> None:
        session.execute("select maintain()")

    assert rounds(connect, [come_and_go, come_and_go, maintain]) == []
    ours.db.execute("select unsubscribe(id) from subscriptions")
    ours.maintain()
    assert ours.db.execute("select count(*) from conditions").fetchall() == [(3,)]


def test_rows_that_time_makes_worthless_go(ours: Broker) -> None:
    sid = ours.subscribe("g", "e.topic = 't'")
    ours.publish(("t", 1))
    ours.poll()
    ours.db.execute("select bury_v1(%s, 'h', array[1]::bigint[], 3, 'no')", [sid])
    ours.db.execute("select begin_writing_v1('w', array['t'])")
    ours.db.execute("select publish_once('t', 'key', '{}')")

    def counts() -> list[int]:
        tables = ("dead_letters", "writers", "event_keys")
        return [ours.db.execute(f"select count(*) from {table}".encode()).fetchall()[0][0] for table in tables]

    ours.maintain("12 hours")
    assert counts() == [1, 1, 1]
    ours.maintain("29 days")
    assert counts() == [1, 1, 0]
    ours.maintain("31 days")
    assert counts() == [0, 1, 0]
    ours.maintain("2 years")
    assert counts() == [0, 0, 0]


@pytest.mark.parametrize("key", ["lease", "poll_chunk_size", "max_lag", "condition_time", "partition_interval"])
def test_a_setting_that_is_gone_counts_as_its_default(ours: Broker, key: str) -> None:
    ours.db.execute("delete from config where key = %s", [key])
    ours.subscribe("g", "e.topic like 't%'")
    ours.publish(("t", 1))
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == [1]
    ours.db.execute("select maintain(now() + interval '1 hour')")


@pytest.mark.parametrize("key", ["leese", "Lease", "", "plugin_version"])
def test_a_misspelt_setting_is_refused(db: psycopg.Connection[Any], key: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="there is no setting"):
        db.execute("insert into config (key, value) values (%s, '1 second')", [key])
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        db.execute("update config set key = %s where key = 'lease'", [key])


@pytest.mark.parametrize("due", ["infinity", "-infinity"])
def test_nothing_is_due_at_infinity(db: psycopg.Connection[Any], due: str) -> None:
    for statement in ("publish('t', '1', due_at => %s)", "send(1, 't', '1', due_at => %s)"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="infinity"):
            db.execute(f"select {statement}".encode(), [due])
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("insert into scheduled (due_at, topic, payload) values (%s, 't', '1')", [due])
    assert db.execute("select count(*) from scheduled").fetchall() == [(0,)]


def test_a_clock_that_was_put_back_keeps_no_partition_open(ours: Broker) -> None:
    ours.publish(("t", 1))
    ours.maintain("40 minutes")
    ours.publish(("t", 2))
    ours.poll()
    ours.db.execute("update partitions set opened_at = now() + interval '1 day' where opened_at is not null")
    ours.db.execute("select maintain()")
    row = ours.db.execute("select rolled from maintain(now() + interval '31 minutes')").fetchall()
    assert row == [(True,)]
