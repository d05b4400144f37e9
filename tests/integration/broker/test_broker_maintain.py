"""Partitions, retention, expiry: what goes, what stays, and who is told."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.integration.broker.brokers import Broker, Headgate, drain
from tests.integration.broker.conftest import Connect
from tests.integration.broker.servers import every_server


def maintain(broker: Broker, after: str) -> tuple[Any, ...]:
    row = broker.db.execute(
        "select rolled, created, dropped, expired, overrun from maintain(now() + %s::interval)", [after]
    ).fetchone()
    assert row is not None
    return tuple(row)


def partitions(db: psycopg.Connection[Any], parent: str) -> list[int]:
    rows = db.execute("select number from partitions where parent = %s order by 1", [parent])
    return [number for (number,) in rows]


def test_what_all_have_read_goes_after_its_time(ours: Broker) -> None:
    ours.subscribe("g", "e.topic is not null")
    ours.subscribe("idle", "e.topic = 'other'")  # nothing is for it: it holds nothing up
    ours.subscribe("log")
    ours.publish(("t", 1))
    ours.poll()
    assert maintain(ours, "0 s") == (False, 0, 0, 0, 0)
    drain(ours, "g")
    assert maintain(ours, "31 minutes") == (True, 1, 0, 0, 0)  # positions go on in a partition that is there
    assert maintain(ours, "31 minutes") == (False, 2, 0, 0, 0)
    assert maintain(ours, "2 hours")[2] == 0  # the group that reads the log has not
    drain(ours, "log")
    assert maintain(ours, "2 hours")[2] == 3
    for parent in ("events", "deliveries", "batches"):
        assert partitions(ours.db, parent) == list(range(1, 8))
    ids = ours.publish(("t", 2))
    assert ids == [2**32 + 1]
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == [2]
    assert [event.payload for event in drain(ours, "log")] == [2]


def test_an_empty_partition_is_not_closed(ours: Broker) -> None:
    assert maintain(ours, "10 days") == (False, 0, 0, 0, 0)


def test_what_an_open_transaction_has_written_stays(ours: Broker, connect: Any) -> None:
    ours.subscribe("g", "e.topic is not null")
    late = connect(autocommit=False)
    ours.on(late).publish(("t", "late"))
    ours.publish(("t", 1))
    ours.poll()
    drain(ours, "g")
    for after in ("1 hour", "3 hours"):
        maintain(ours, after)
    late.commit()
    maintain(ours, "4 hours")
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == ["late"]
    ours.maintain("5 hours")
    assert 0 not in partitions(ours.db, "events")


def test_a_group_that_lags_too_far_is_told(ours: Broker) -> None:
    """H4c."""
    ours.subscribe("g", "e.topic is not null")
    ours.subscribe("healthy", "e.topic like '%'")
    ours.publish(*[("t", number) for number in range(5)])
    ours.poll()
    ours.ack("g", ours.read("g", 2)[0].cursor)
    drain(ours, "healthy")
    assert maintain(ours, "1 hour")[4] == 0
    ours.publish(("t", 5))
    ours.poll()
    assert maintain(ours, "8 days")[4] == 1
    row = ours.db.execute("select id, gap::text, next_cursor from read_next_events('g')").fetchall()
    assert row == [(None, "[3,6)", 5)]
    status = ours.db.execute(
        "select overrun_at is not null, overrun_from, overrun_to from group_status where group_id = 'g'"
    )
    assert status.fetchone() == (True, 3, 5)
    ours.ack("g", 5)
    assert [event.payload for event in drain(ours, "g")] == [5]
    assert [event.payload for event in drain(ours, "healthy")] == [5]


def test_a_client_that_lives_keeps_its_subscriptions(ours: Broker) -> None:
    """One row for a client, however many subscriptions it holds."""
    subscribe = (
        "select subscribe('g', 'e.topic = s.params ->> ''t'' ', jsonb_build_object('t', %s::text),"
        " interval '5 minutes', %s)"
    )
    for number in range(20):
        ours.db.execute(subscribe, [str(number), "client"])
    (alone,) = ours.db.execute(subscribe, ["alone", None]).fetchone() or (0,)
    ours.db.execute("update clients set last_active_at = now() + interval '1 hour'")
    assert maintain(ours, "1 hour")[3] == 1
    assert ours.db.execute("select id from subscriptions where expired_at is not null").fetchall() == [(alone,)]
    catalog = "select count(*) from pg_attribute"
    before = ours.db.execute(catalog).fetchone()
    for _ in range(20):
        assert ours.db.execute("select heartbeat_v1('client')").fetchone() == (True,)
    assert ours.db.execute(catalog).fetchone() == before
    assert ours.db.execute("select heartbeat_v1('nobody')").fetchone() == (False,)
    (left,) = ours.db.execute("select min(id) from subscriptions").fetchone() or (0,)
    ours.db.execute("select leave_v1('client', %s)", [left])
    ours.db.execute("update clients set last_active_at = now() + interval '1 hour'")
    assert maintain(ours, "1 hour")[3] == 1
    assert maintain(ours, "30 days")[3] == 19
    assert maintain(ours, "60 days")[3] == 0
    assert ours.db.execute("select count(*) from subscriptions").fetchone() == (0,)
    assert ours.db.execute("select count(*) from subscription_groups").fetchone() == (0,)
    assert ours.db.execute("select count(*) from clients").fetchone() == (0,)


def test_expiry_is_the_longest_that_was_asked_for(ours: Broker) -> None:
    def expiry() -> Any:
        return ours.db.execute("select expiry_interval::text from subscriptions").fetchone()

    for asked, kept in (("5 minutes", "00:05:00"), ("1 minute", "00:05:00"), ("1 hour", "01:00:00"), (None, None)):
        ours.subscribe("g", expiry=asked)
        assert expiry() == (kept,)
    ours.subscribe("g", expiry="1 minute")
    assert expiry() == (None,)


@pytest.mark.parametrize(
    ("key", "value"),
    [("partition_interval", "1 second"), ("poll_chunk_size", "0"), ("max_lag", "-1 day"), ("lease", "soon")],
)
def test_settings_that_cannot_be(db: psycopg.Connection[Any], key: str, value: str) -> None:
    with pytest.raises(psycopg.DataError):
        db.execute("update config set value = %s where key = %s", [value, key])


def test_the_interval_can_be_changed_at_any_time(ours: Broker) -> None:
    ours.publish(("t", 1))
    ours.db.execute("update config set value = '1 day' where key = 'partition_interval'")
    ours.db.execute("update config set value = '14 days' where key = 'future_intervals_to_create'")
    assert maintain(ours, "2 hours")[:2] == (False, 24)
    assert maintain(ours, "25 hours")[:2] == (True, 1)
    ours.db.execute("select maintain_events_table()")


def test_history_is_trimmed(ours: Broker) -> None:
    ours.subscribe("g", "e.topic is not null")
    for number in range(30):
        ours.publish(("t", number))
        ours.poll()
        drain(ours, "g")
    maintain(ours, "0 s")
    for table in ("dispatcher_state", "group_cursors", "subscription_changes"):
        row = ours.db.execute(f"select count(*) from {table}".encode()).fetchone()
        assert row is not None
        assert row[0] <= 1


@every_server
def test_an_archive_of_handled_events(db: psycopg.Connection[Any], connect: Connect) -> None:
    """What all have read is kept as long as was said, a reader of it holds up nobody, and in the end it is gone."""
    ours = Headgate(db)
    ours.subscribe("g")
    db.execute("update config set value = '2 days' where key = 'archive_retention'")
    for hour in range(3):
        ours.publish(*[("t", {"n": hour * 10 + number}) for number in range(10)])
        ours.poll()
        drain(ours, "g")
        ours.maintain(f"{hour + 1} hours")
    ours.maintain("12 hours")
    archived = "select payload -> 'n' from archived_events order by id"
    assert [n for (n,) in db.execute(archived).fetchall()] == list(range(30))
    assert db.execute("select count(*) from events").fetchall() == [(0,)]
    reader = connect(autocommit=False)
    reader.execute("select count(*) from archived_events")
    ours.publish(("t", {"n": 30}))
    ours.maintain("3 days")
    assert db.execute("select count(*) from archived_events").fetchall() == [(30,)]
    reader.rollback()
    ours.maintain("3 days")
    assert db.execute("select count(*) from archived_events").fetchall() == [(0,)]
    ours.poll()
    assert [event.payload for event in drain(ours, "g")] == [{"n": 30}]
