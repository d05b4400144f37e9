"""Direct events, groups that read the log, keys, and what a restored database needs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.integration.broker.brokers import Broker, drain
from tests.integration.broker.conftest import Connect

SHIFT = """
create function pg_temp.shift(s pg_snapshot) returns pg_snapshot language sql strict as $$
  select format('%s:%s:%s', pg_snapshot_xmin(s)::text::bigint + 1000000, pg_snapshot_xmax(s)::text::bigint + 1000000,
    (select string_agg((x::text::bigint + 1000000)::text, ',') from pg_snapshot_xip(s) as x))::pg_snapshot
$$"""


def payloads(broker: Broker, group: str) -> list[Any]:
    return [event.payload for event in drain(broker, group)]


def test_a_direct_event_goes_to_one_subscription(ours: Broker) -> None:
    first, second = ours.subscribe("g", "e.topic = 't'"), ours.subscribe("g", "e.topic = 'u'")
    reads_log = ours.subscribe("log")
    ours.db.execute("select send(%s, 'x', '\"for one\"')", [first])
    ours.db.execute("select send_many(%s, array['t', 't'], array['1', '2']::jsonb[])", [[second, reads_log]])
    ours.publish(("t", 3))
    ours.poll()
    assert [(event.payload, event.subscriptions) for event in drain(ours, "g")] == [
        ("for one", (first,)),
        (1, (second,)),
        (3, (first,)),
    ]
    assert [(event.payload, event.subscriptions) for event in drain(ours, "log")] == [
        (2, (reads_log,)),
        (3, (reads_log,)),
    ]
    with pytest.raises(psycopg.errors.UndefinedObject, match="no subscription 99"):
        ours.db.execute("select send(99, 't', '{}')")


def test_a_scheduled_direct_event(ours: Broker) -> None:
    sid = ours.subscribe("g", "e.topic = 't'")
    ours.db.execute("select send(%s, 'x', '1', due_at => now())", [sid])
    ours.db.execute(
        "insert into events (id, topic, payload, subscription_id)"
        " values (create_event_id(now() - interval '1 second', 0), 'x', '0', %s)",
        [sid],
    )
    ours.poll()
    assert payloads(ours, "g") == [0, 1]


def test_groups_that_want_all_share_the_log(ours: Broker) -> None:
    """A hundred such groups cost what one does; a second subscription makes it an ordinary group, and back."""
    for number in range(100):
        ours.subscribe(f"g{number}")
    ours.publish(("a", 1), ("b", 2))
    ours.poll()
    assert ours.db.execute("select count(*) from deliveries").fetchone() == (0,)
    assert payloads(ours, "g7") == [1, 2]
    second = ours.subscribe("g7", "e.topic = 'a'")
    ours.publish(("a", 3), ("b", 4))
    ours.poll()
    assert ours.db.execute("select count(*) from deliveries").fetchone() == (2,)
    ours.db.execute("select unsubscribe(%s)", [second])
    ours.publish(("a", 5))
    ours.poll()
    assert [(event.payload, len(event.subscriptions)) for event in drain(ours, "g7", 2)] == [(3, 2), (4, 1), (5, 1)]
    assert payloads(ours, "g8") == [1, 2, 3, 4, 5]


def test_the_log_is_read_a_little_at_a_time(ours: Broker) -> None:
    ours.subscribe("g")
    for start in (0, 10, 20):
        ours.publish(*[("t", number) for number in range(start, start + 10)])
        ours.poll()
    assert [event.payload for event in drain(ours, "g", 3)] == list(range(30))


def test_a_key_is_published_once(ours: Broker, connect: Connect) -> None:
    ours.subscribe("g")
    publish = "select publish_once('t', %s, %s::text::jsonb)"
    first = ours.db.execute(publish, ["k", "1"]).fetchone()
    assert ours.db.execute(publish, ["k", "2"]).fetchone() == first
    assert ours.db.execute(publish, ["other", "3"]).fetchone() != first
    given_up = connect(autocommit=False)
    given_up.execute(publish, ["third", "4"])
    given_up.rollback()
    ours.db.execute(publish, ["third", "5"])
    ours.poll()
    assert payloads(ours, "g") == [1, 3, 5]


def test_groups_seek_anywhere(ours: Broker) -> None:
    ours.subscribe("g", "e.topic is not null")
    ours.publish(*[("t", number) for number in range(5)])
    ours.poll()
    assert payloads(ours, "g") == [0, 1, 2, 3, 4]
    ours.db.execute("select seek('g', 2)")
    assert payloads(ours, "g") == [2, 3, 4]
    ours.db.execute("select seek('g', 1000000)")
    ours.publish(("t", 5))
    ours.poll()
    assert payloads(ours, "g") == [5]


def test_names_that_are_not_there(db: psycopg.Connection[Any]) -> None:
    for statement in ("read_next_events('x')", "set_group_cursor('x', 1)", "seek('x', 1)", "resume_condition(99)"):
        with pytest.raises(psycopg.errors.UndefinedObject):
            db.execute(sql.SQL("select headgate.{}").format(sql.SQL(statement)))


def test_one_dispatcher_at_a_time(ours: Broker, connect: Connect) -> None:
    ours.subscribe("g", "e.topic is not null")
    ours.publish(("t", 1))
    other = connect(autocommit=False)
    assert other.execute("select dispatched from poll_for_events_v1()").fetchone() == (1,)
    assert ours.poll() == 0
    other.rollback()
    assert ours.poll() == 1


def test_an_idle_poll_writes_nothing(ours: Broker) -> None:
    ours.subscribe("g")
    ours.publish(("t", 1))
    ours.poll()
    drain(ours, "g")
    with ours.db.transaction():
        ours.db.execute("select poll_for_events()")
        ours.db.execute("select * from read_next_events('g')")
        assert ours.db.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)


def test_a_poll_needs_read_committed(db: psycopg.Connection[Any]) -> None:
    db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.InvalidTransactionState), db.transaction():
        db.execute("select poll_for_events()")


def test_readers_are_told_once_for_a_batch(ours: Broker, connect: Connect) -> None:
    gnos = []
    for group in ("one", "two", "none"):
        ours.subscribe(group, "e.topic = s.params ->> 't'", {"t": group})
        gnos.append(ours.db.execute("select gno from subscription_groups where id = %s", [group]).fetchone())
    listener = connect()
    listener.execute("listen headgate_events")
    ours.publish(*[(group, number) for group in ("one", "two") for number in range(50)])
    ours.poll()
    told = [note.payload for note in listener.notifies(timeout=5, stop_after=1)]
    assert [sorted(payload.split(",")) for payload in told] == [sorted(str(gno[0]) for gno in gnos[:2] if gno)]
    assert list(listener.notifies(timeout=0)) == []


def test_a_restored_database_is_rebased(ours: Broker, connect: Connect) -> None:
    """As after a dump that was restored elsewhere: numbers of transactions that mean something else there."""
    ours.subscribe("g", "e.topic is not null")
    late = connect(autocommit=False)
    ours.on(late).publish(("t", "late"))
    ours.publish(*[("t", number) for number in range(4)])
    ours.db.execute("select poll_for_events_v1(2)")
    late.commit()
    ours.publish(("t", 4))
    # Old numbers far ahead of what this cluster has reached.
    ours.db.execute("update events set xid = (xid::text::bigint + 1000000)::text::xid8")
    ours.db.execute(SHIFT)
    ours.db.execute(
        "update dispatcher_state set system_id = 1, done = pg_temp.shift(done), target = pg_temp.shift(target)"
    )
    with pytest.raises(psycopg.Error, match="another cluster") as refused:
        ours.poll()
    assert refused.value.sqlstate == "HG002"
    assert ours.db.execute("select rebase()").fetchone() == (4,)
    assert ours.db.execute("select rebase()").fetchone() == (0,)
    ours.publish(("t", 5))
    ours.poll()
    assert sorted(map(str, payloads(ours, "g"))) == ["0", "1", "2", "3", "4", "5", "late"]
