"""Stories in which the original loses events, stalls or mixes things up, told to it and to ours.

Each is told to a model of the original, too, and does not end well there: a test that cannot fail proves nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.integration.broker.brokers import BY_TOPIC, Broker, drain, topic_of
from tests.integration.broker.conftest import Connect


def lost_in_a_drain(broker: Broker, topics: int, fan_out: bool = False, groups: int = 1) -> int:
    """H1: ten thousand waiting, a thousand read at a time. Any plan must do, also one that the planner likes less."""
    broker.db.execute("set enable_nestloop = off")
    broker.db.execute("set enable_hashjoin = off")
    for number in range(topics):
        group = f"g{number % groups}"
        if fan_out:
            broker.subscribe(group, "s.params is not null", {"n": number})
        else:
            broker.subscribe(group, BY_TOPIC, {"topic": topic_of(number)})
    events = 200 if fan_out else 10_000
    expected = set()
    for start in range(0, events, events // 10):
        numbers = range(start, start + events // 10)
        ids = broker.publish(*[(topic_of(number % topics), number) for number in numbers])
        expected |= (
            {(f"g{g}", event_id) for event_id in ids for g in range(groups)}
            if fan_out
            else {(f"g{number % topics % groups}", event_id) for number, event_id in zip(numbers, ids, strict=True)}
        )
        broker.poll()
    broker.db.execute(b"analyze headgate.subscriptions, original.subscriptions")
    got = {(f"g{g}", event.id) for g in range(groups) for event in drain(broker, f"g{g}")}
    return len(expected - got)


@pytest.mark.parametrize("topics", [20, 200])
def test_a_drain_loses_nothing(ours: Broker, topics: int) -> None:
    assert lost_in_a_drain(ours, topics) == 0


def test_a_drain_with_other_costs_loses_nothing(ours: Broker) -> None:
    ours.db.execute("set random_page_cost = 4")
    assert lost_in_a_drain(ours, 60) == 0


def test_a_drain_of_a_fan_out_loses_nothing(ours: Broker) -> None:
    assert lost_in_a_drain(ours, 100, fan_out=True) == 0


def test_a_drain_of_many_groups_loses_nothing(ours: Broker) -> None:
    assert lost_in_a_drain(ours, 100, groups=100) == 0


def test_a_drain_of_the_original_loses_most(original: Broker) -> None:
    assert lost_in_a_drain(original, 60) > 1000


def lost_by_a_clock_that_steps_back(broker: Broker) -> int:
    """H3. The model's clock is set; ours has none to set, so the times of its events are."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(("t", 0))
    broker.poll()
    broker.ack("g", broker.read("g")[0].cursor)
    broker.db.execute("set original.clock_offset = '-10 s'")
    for number in range(5):
        broker.publish(("t", number))
    broker.db.execute("update events set at = at - interval '10 s' where id > 1")
    broker.poll()
    broker.db.execute("set original.clock_offset = '0 s'")
    return 5 - len(broker.read("g"))


def test_a_clock_that_steps_back_loses_nothing(ours: Broker) -> None:
    assert lost_by_a_clock_that_steps_back(ours) == 0


def test_a_clock_that_steps_back_loses_all_in_the_original(original: Broker) -> None:
    assert lost_by_a_clock_that_steps_back(original) == 5


def kept_by_retention(broker: Broker, polled: bool) -> int:
    """H4: nobody polls, or nobody reads, for longer than the retention."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(*[("t", number) for number in range(50)])
    if polled:
        broker.poll()
    broker.maintain("2 hours")
    broker.maintain("4 hours")
    broker.poll()
    return len(drain(broker, "g"))


@pytest.mark.parametrize("polled", [False, True], ids=["unpolled", "unread"])
def test_retention_keeps_what_nobody_has_read(ours: Broker, polled: bool) -> None:
    assert kept_by_retention(ours, polled) == 50


@pytest.mark.parametrize("polled", [False, True], ids=["unpolled", "unread"])
def test_retention_of_the_original_drops_it(original: Broker, polled: bool) -> None:
    assert kept_by_retention(original, polled) == 0


def kept_across_time_zones(broker: Broker) -> int:
    """H5."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(*[("t", number) for number in range(50)])
    for zone in ("Asia/Tokyo", "America/Los_Angeles", "Europe/Berlin"):
        broker.db.execute(f"set timezone = '{zone}'".encode())
        broker.maintain()
    broker.publish(("t", 50))
    broker.poll()
    return len(drain(broker, "g"))


def test_maintenance_from_another_time_zone_drops_nothing(ours: Broker) -> None:
    assert kept_across_time_zones(ours) == 51


def test_maintenance_of_the_original_from_another_time_zone(original: Broker) -> None:
    original.db.execute("set timezone = 'UTC'")
    with pytest.raises((psycopg.errors.CheckViolation, AssertionError)):
        assert kept_across_time_zones(original) == 51


POISON = "(e.payload ->> 'v')::int > 3"


def healthy_beside_a_poisoned_condition(broker: Broker) -> int:
    """H6: one condition raises on one event."""
    broker.subscribe("healthy", "e.topic is not null")
    broker.subscribe("bad", POISON)
    broker.publish(("t", {"v": "abc"}))
    for number in (4, 5, 6):
        broker.poll()
        broker.publish(("t", {"v": number}))
    broker.poll()
    return len(drain(broker, "healthy"))


def test_a_condition_that_raises_stops_nobody_else(ours: Broker) -> None:
    assert healthy_beside_a_poisoned_condition(ours) == 4
    # Nor its own subscription: the event that it raised on is a dead letter, with the error.
    assert [event.payload["v"] for event in drain(ours, "bad")] == [4, 5, 6]
    letters = ours.db.execute("select group_id, event_id, handler, payload, error from dead_letters").fetchall()
    assert letters == [
        ("bad", 1, "", {"v": "abc"}, 'the condition failed: invalid input syntax for type integer: "abc"')
    ]


def test_what_a_parked_subscription_has_missed_outlives_retention(ours: Broker) -> None:
    ours.db.execute("update config set value = '1' where key = 'condition_failures'")
    healthy_beside_a_poisoned_condition(ours)
    assert drain(ours, "bad") == []
    ours.maintain("2 hours")
    ours.maintain("4 hours")
    (parked,) = ours.db.execute("select subscription_id from parked").fetchone() or (0,)
    assert ours.db.execute("select resume_subscription(%s)", [parked]).fetchone() == (True,)
    ours.poll()
    assert [event.payload["v"] for event in drain(ours, "bad")] == [4, 5, 6]
    assert ours.db.execute("select * from parked").fetchall() == []


def test_a_condition_that_raises_stops_all_in_the_original(original: Broker) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        healthy_beside_a_poisoned_condition(original)


def after_read_ahead_and_one_release(broker: Broker, other: psycopg.Connection[Any]) -> int:
    """H7a: three read ahead, one acknowledgement that releases; another session reads the fourth."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(*[("t", number) for number in range(3)])
    broker.poll()
    cursor = broker.cursor("g")
    for _ in range(3):
        (event,) = broker.read("g", 1, cursor)
        cursor = event.cursor
    broker.ack("g", cursor, release=True)
    broker.publish(("t", 3))
    broker.poll()
    return len(broker.on(other).read("g"))


def test_one_release_is_enough(ours: Broker, connect: Connect) -> None:
    assert after_read_ahead_and_one_release(ours, connect()) == 1


def test_one_release_is_not_enough_in_the_original(original: Broker, connect: Connect) -> None:
    assert after_read_ahead_and_one_release(original, connect()) == 0


def after_a_peek(broker: Broker, other: psycopg.Connection[Any]) -> int:
    """H7b."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(("t", 0))
    broker.poll()
    assert len(broker.read("g", peek=True)) == 1
    return len(broker.on(other).read("g"))


def test_a_peek_holds_nobody_up(ours: Broker, connect: Connect) -> None:
    assert after_a_peek(ours, connect()) == 1


def test_a_peek_holds_others_up_in_the_original(original: Broker, connect: Connect) -> None:
    assert after_a_peek(original, connect()) == 0


def seen_before_the_commit(broker: Broker, other: psycopg.Connection[Any]) -> int:
    """H7c: acknowledged and released in a transaction that is still open."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(("t", 0))
    broker.poll()
    cursor = broker.read("g")[0].cursor
    with broker.db.transaction():
        broker.ack("g", cursor, release=True)
        return len(broker.on(other).read("g"))


def test_what_is_acknowledged_is_not_read_again_before_the_commit(ours: Broker, connect: Connect) -> None:
    assert seen_before_the_commit(ours, connect()) == 0


def test_what_is_acknowledged_is_read_again_in_the_original(original: Broker, connect: Connect) -> None:
    assert seen_before_the_commit(original, connect()) == 1


def cursor_after_an_older_acknowledgement(broker: Broker) -> bool:
    """H7d: whether the cursor stays."""
    broker.subscribe("g", "e.topic is not null")
    broker.publish(*[("t", number) for number in range(10)])
    broker.poll()
    first, *_, last = [broker.read("g", n)[0].cursor for n in range(1, 11)]
    broker.ack("g", last)
    broker.ack("g", first)
    return bool(broker.cursor("g") == last)


def test_the_cursor_only_moves_forward(ours: Broker) -> None:
    assert cursor_after_an_older_acknowledgement(ours)


def test_the_cursor_of_the_original_moves_back(original: Broker) -> None:
    assert not cursor_after_an_older_acknowledgement(original)


def test_another_reader_takes_over_after_the_lease_and_the_first_is_refused(ours: Broker, connect: Connect) -> None:
    """H7f. A lease of a clock's time: the test ends it instead of waiting."""
    ours.subscribe("g")
    ours.publish(("t", 0))
    ours.poll()
    (event,) = ours.read("g")
    other = ours.on(connect())
    assert other.read("g") == []
    ours.db.execute("update subscription_groups set lease_until = clock_timestamp()")
    assert other.read("g") == [event]
    with pytest.raises(psycopg.Error, match="another reader") as refused:
        ours.ack("g", event.cursor)
    assert refused.value.sqlstate == "HG001"
    assert ours.read("g") == []
    other.ack("g", event.cursor)


def test_readers_may_share_a_session(ours: Broker) -> None:
    """H7g: as behind a pooler, where names and not sessions say who reads."""
    ours.subscribe("g")
    ours.publish(("t", 0))
    ours.poll()
    read = "select next_cursor, epoch from read_next_events('g', owner => %s)"
    row = ours.db.execute(read, ["one"]).fetchone()
    assert row is not None
    assert ours.db.execute(read, ["two"]).fetchall() == []
    ack = "select set_group_cursor('g', %s, true, %s, %s)"
    with pytest.raises(psycopg.Error, match="another reader"):
        ours.db.execute(ack, [row[0], "two", row[1]])
    ours.db.execute(ack, [row[0], "one", row[1]])
    assert ours.db.execute("select owner from group_status").fetchone() == (None,)


def test_a_cursor_cannot_be_ahead_of_the_dispatcher(ours: Broker) -> None:
    ours.subscribe("g")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no position 7"):
        ours.ack("g", 7)


def bound_to_their_own(broker: Broker, statement: str) -> bool:
    """H10: two subscriptions whose 32-bit hashes are equal."""
    row = broker.db.execute(
        "select array_agg(n order by n) from (select n, hashtext('g/' || %s || '/' ||"
        " jsonb_hash(jsonb_build_object('user', n))::text) as h from generate_series(1, 300000) as n) as c"
        " group by h having count(*) > 1 limit 1",
        [statement],
    ).fetchone()
    assert row is not None
    one, two = row[0][:2]
    first = broker.subscribe("g", statement, {"user": one})
    second = broker.subscribe("g", statement, {"user": two})
    return bool(first != second)


BY_USER = "s.params @> jsonb_build_object('user', e.payload -> 'user')"


def test_subscriptions_with_equal_hashes_are_two(ours: Broker) -> None:
    assert bound_to_their_own(ours, BY_USER)


def test_subscriptions_with_equal_hashes_are_one_in_the_original(original: Broker) -> None:
    assert not bound_to_their_own(original, BY_USER)


def with_percent_signs(broker: Broker) -> int:
    """H11."""
    broker.subscribe("like", "e.topic like 'ord%'")
    broker.subscribe("modulo", "hashtext(e.topic) % 3 is not null")
    broker.publish(("order", 1), ("other", 2))
    broker.poll()
    return len(drain(broker, "like")) + len(drain(broker, "modulo"))


def test_conditions_may_have_percent_signs(ours: Broker) -> None:
    assert with_percent_signs(ours) == 3


def test_conditions_of_the_original_may_not(original: Broker) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        with_percent_signs(original)


def test_every_key_has_one_slot(db: psycopg.Connection[Any]) -> None:
    rows = db.execute("select distinct slot_of(n::text, 3), count(*) over () from generate_series(1, 30000) as n")
    assert sorted(slot for slot, _ in rows) == [0, 1, 2]
    negative = db.execute(
        "select count(*) from generate_series(1, 30000) as n where hashtext(n::text) % 3 < 0"
    ).fetchone()
    assert negative is not None
    assert negative[0] > 5000


def publishes_beside_maintenance(
    broker: Broker, writer: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> bool:
    """H12: one publishes and stays open; maintenance has to make and to drop a partition; another one publishes."""
    broker.publish(("t", 0))
    broker.poll()
    broker.maintain("31 minutes")
    with writer.transaction():
        broker.on(writer).publish(("t", 1))
        broker.db.execute("set lock_timeout = '400 ms'")
        other.execute("set lock_timeout = '300 ms'")
        broker.maintain("3 hours")
        broker.on(other).publish(("t", 2))
    broker.maintain("6 hours")
    return True


def test_maintenance_holds_no_publisher_up(ours: Broker, connect: Connect) -> None:
    assert publishes_beside_maintenance(ours, connect(), connect())
    assert ours.db.execute("select to_regclass('events_0')").fetchone() == (None,)


def test_maintenance_of_the_original_waits_for_publishers(original: Broker, connect: Connect) -> None:
    with pytest.raises(psycopg.errors.LockNotAvailable):
        publishes_beside_maintenance(original, connect(), connect())


def test_publishers_wait_no_longer_than_maintenance_does(ours: Broker, connect: Connect) -> None:
    """H12, while maintenance waits for its lock: others queue behind it, for as long as it may wait."""
    ours.db.execute("update config set value = '1 second' where key = 'maintenance_lock_timeout'")
    ours.publish(("t", 0))
    ours.poll()
    ours.db.execute("select maintain(now() + interval '1 hour')")
    writer, maintainer, other = connect(), connect(), connect()
    with ThreadPoolExecutor(1) as beside:
        with writer.transaction():
            ours.on(writer).publish(("t", 1))
            maintenance = beside.submit(
                lambda: maintainer.execute("select dropped from maintain(now() + interval '3 hours')").fetchone()
            )
            while not ours.db.execute(
                "select 1 from pg_locks where not granted and pid = %s", [maintainer.info.backend_pid]
            ).fetchone():
                assert not maintenance.done()
            other.execute("set lock_timeout = '4 s'")
            ours.on(other).publish(("t", 2))
        assert maintenance.result() is not None
    maintainer.execute("select maintain(now() + interval '6 hours')")
    assert ours.db.execute("select to_regclass('events_0')").fetchone() == (None,)


def far_ahead(broker: Broker) -> int:
    """H13: hours and a year ahead, and twenty thousand for one instant."""
    broker.subscribe("g", "e.topic is not null")
    broker.schedule("t", "in hours", "4 hours")
    broker.schedule("t", "in a year", "1 year")
    return 2


def test_events_can_be_scheduled_for_any_time(ours: Broker) -> None:
    assert far_ahead(ours) == 2
    ours.db.execute(
        "select schedule_v1(array_agg(timestamptz '2020-01-01' + (n % 2) * interval '1 s'), array_agg('t'::text),"
        " array_agg(to_jsonb(n))) from generate_series(1, 20000) as n"
    )
    ours.poll()
    got = [event.payload for event in drain(ours, "g", 20_000)]
    assert got == [*range(2, 20_001, 2), *range(1, 20_001, 2)]
    assert ours.db.execute("select count(*) from scheduled").fetchone() == (2,)


def test_events_of_the_original_cannot(original: Broker) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        far_ahead(original)


def test_ids_of_the_original_collide_and_turn_around(db: psycopg.Connection[Any]) -> None:
    """H14; ours are numbers."""
    row = db.execute(
        "select count(distinct original.create_event_id('2026-01-01', n)),"
        " count(*) filter (where original.create_event_id('2026-01-01', n) collate \"C\" <"
        " original.create_event_id('2026-01-01', n - 1)) from generate_series(1, 5000) as n"
    ).fetchone()
    assert row is not None
    assert row[0] < 5000
    assert row[1] > 0


def resumed_after_a_late_commit(broker: Broker, late: psycopg.Connection[Any]) -> list[Any]:
    """H15: the first event commits last; a client that has seen the second one resumes after it."""
    sid = broker.subscribe("g", "e.topic is not null")
    with late.transaction():
        broker.on(late).publish(("t", "first"))
        broker.publish(("t", "second"))
        broker.poll()
        (second,) = broker.read("g", peek=True)
    broker.poll()
    if "Original" in type(broker).__name__:
        return broker.db.execute("select original.replay('g', %s, %s)", [sid, second.id]).fetchall()
    return [event.payload for event in broker.read("g", cursor=second.cursor, peek=True)]


def test_who_resumes_gets_late_commits(ours: Broker, connect: Connect) -> None:
    assert resumed_after_a_late_commit(ours, connect()) == ["first"]


def test_who_resumes_at_the_original_does_not(original: Broker, connect: Connect) -> None:
    assert resumed_after_a_late_commit(original, connect()) == []


def test_who_comes_back_after_its_subscription_has_expired_finds_its_backlog(ours: Broker) -> None:
    """H16."""
    first = ours.subscribe("g", "e.topic is not null", expiry="1 s")
    ours.publish(*[("t", number) for number in range(10)])
    ours.poll()
    ours.maintain("1 minute")
    assert ours.db.execute("select count(*) from subscriptions where expired_at is not null").fetchone() == (1,)
    ours.publish(("t", "nobody listens"))
    ours.poll()
    assert ours.subscribe("g", "e.topic is not null", expiry="1 s") == first
    assert [event.payload for event in drain(ours, "g")] == list(range(10))


def test_who_comes_back_to_the_original_finds_nothing(original: Broker) -> None:
    first = original.subscribe("g", "e.topic is not null", expiry="1 s")
    original.publish(("t", 0))
    original.poll()
    original.db.execute(
        "delete from original.subscriptions where last_active_at + expiry_interval < now() + interval '1 m'"
    )
    assert original.subscribe("g", "e.topic is not null", expiry="1 s") != first
    assert drain(original, "g") == []


def retried_after_retention(broker: Broker) -> Any:
    """H17b: the event is gone when its retry comes."""
    sid = broker.subscribe("g", "e.topic is not null")
    (event_id,) = broker.publish(("t", {"n": 1}))
    broker.poll()
    drain(broker, "g")
    if "Original" in type(broker).__name__:
        broker.db.execute(
            "insert into original.events (topic, payload, subscription_id) values ('pgmb-retry', %s, %s)",
            [Jsonb({"ids": [event_id]}), sid],
        )
        broker.maintain("3 hours")
        return broker.db.execute("select count(*) from original.events where id = %s", [event_id]).fetchone()
    broker.db.execute("select retry_v1(%s, 'h', %s, 2, 'it failed', interval '0')", [sid, [event_id]])
    broker.maintain("3 hours")
    broker.maintain("6 hours")
    assert broker.db.execute("select count(*) from events").fetchone() == (0,)
    broker.poll()
    row = broker.db.execute("select payload, retry, subscription_ids from read_next_events('g')").fetchone()
    assert row is not None
    assert row[1:] == ({"of": event_id, "handler": "h", "attempt": 2}, [sid])
    return row[0]


def test_a_retry_has_its_payload_after_retention(ours: Broker) -> None:
    assert retried_after_retention(ours) == {"n": 1}


def test_a_retry_of_the_original_has_not(original: Broker) -> None:
    assert retried_after_retention(original) == (0,)


def test_a_retry_goes_to_one_subscription_alone(ours: Broker) -> None:
    """H17e; and, exhausted, to the dead letters, from which it comes back."""
    sid = ours.subscribe("g", "e.topic is not null")
    ours.subscribe("log")
    (event_id,) = ours.publish(("t", 1))
    ours.poll()
    ours.db.execute("select retry_v1(%s, 'h', %s, 2, 'it failed', interval '0')", [sid, [event_id]])
    ours.poll()
    assert [(event.payload, event.subscriptions) for event in drain(ours, "g")] == [(1, (sid,)), (1, (sid,))]
    assert len(drain(ours, "log")) == 1
    (dead,) = ours.db.execute("select bury_v1(%s, 'h', %s, 2, 'again')", [sid, [event_id]]).fetchall()
    assert ours.db.execute("select redrive(%s)", [[dead[0]]]).fetchone() == (1,)
    assert ours.db.execute("select count(*) from dead_letters").fetchone() == (0,)
    ours.poll()
    row = ours.db.execute("select id, retry from read_next_events('g')").fetchone()
    assert row is not None
    assert row[1] == {"of": event_id, "handler": "h", "attempt": 1}


def test_a_retry_that_nobody_could_serve_is_refused(ours: Broker) -> None:
    """H17c, in a new partition, too."""
    ours.db.execute("select make_partition('events', max(number) + 1) from partitions where parent = 'events'")
    newest = "select max(number)::bigint << 32 from partitions where parent = 'events'"
    for new_id in ("nextval('event_ids')", f"({newest})"):
        insert = f"insert into events (id, topic, payload, subscription_id, retry) select {new_id}, 't', '1', 1, '{{}}'"
        with pytest.raises(psycopg.errors.CheckViolation, match="a retry names its event"):
            ours.db.execute(insert.encode())


def asserts_beside_an_open_one(broker: Broker, other: psycopg.Connection[Any]) -> int:
    """H18: an assert in an open transaction, and one of another group."""
    other.execute("set lock_timeout = '300 ms'")
    with broker.db.transaction():
        broker.subscribe("one", "e.topic = 'new'")
        return int(broker.on(other).subscribe("two", "e.topic = 'new'") is not None)


def test_asserts_do_not_wait_for_each_other(ours: Broker, connect: Connect) -> None:
    assert asserts_beside_an_open_one(ours, connect()) == 1


def test_asserts_of_the_original_wait(original: Broker, connect: Connect) -> None:
    with pytest.raises(psycopg.errors.LockNotAvailable):
        asserts_beside_an_open_one(original, connect())


def rows_for_an_event(broker: Broker, table: str) -> int:
    """H20a: a hundred subscriptions of one group match."""
    for number in range(100):
        broker.subscribe("g", "s.params is not null", {"n": number})
    broker.publish(("t", 1))
    broker.poll()
    row = broker.db.execute(f"select count(*) from {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_a_group_has_one_row_for_an_event(ours: Broker) -> None:
    assert rows_for_an_event(ours, "deliveries") == 1


def test_a_group_of_the_original_has_a_hundred(original: Broker) -> None:
    assert rows_for_an_event(original, "original.subscription_events") == 100


def moves_over_a_gap(broker: Broker, events: str) -> bool:
    """H20c: the events behind the first deliveries are gone."""
    broker.subscribe("g", "e.topic is not null")
    ids = broker.publish(*[("t", number) for number in range(30)])
    broker.poll()
    broker.db.execute(f"delete from {events} where id = any (%s)".encode(), [ids[:20]])
    return bool(broker.read("g", 10))


def test_a_read_moves_over_what_is_gone_and_says_so(ours: Broker) -> None:
    assert moves_over_a_gap(ours, "events")
    rows = ours.db.execute("select gap::text, topic, next_cursor from read_next_events('g', null, 10)").fetchall()
    assert rows == [(f"[{pos},{pos + 1})", None, 10) for pos in range(1, 11)]


def test_a_read_of_the_original_is_stuck(original: Broker) -> None:
    assert not moves_over_a_gap(original, "original.events")


def test_a_late_commit_is_delivered(ours: Broker, connect: Connect) -> None:
    """H21. A reader of `id > cursor` would not have got it."""
    ours.subscribe("g", "e.topic is not null")
    late = connect()
    with late.transaction():
        (first,) = ours.on(late).publish(("t", "first"))
        (second,) = ours.publish(("t", "second"))
        ours.poll()
        assert [event.id for event in drain(ours, "g")] == [second]
    ours.poll()
    assert ours.db.execute("select id from events where id > %s", [second]).fetchall() == []
    assert [event.id for event in drain(ours, "g")] == [first]


def test_the_order_is_that_of_publishing_and_not_of_transactions(ours: Broker, connect: Connect) -> None:
    """H22. The older transaction publishes after the younger one has committed: cutting by xid turns them around."""
    ours.subscribe("g", "e.topic is not null")
    ours.db.execute("create table unrelated (n int)")
    older = connect()
    with older.transaction():
        older.execute("insert into unrelated values (1)")
        ours.publish(("key", 1))
        ours.on(older).publish(("key", 2))
    by_transaction = ours.db.execute("select payload from events order by xid limit 1").fetchone()
    assert by_transaction == (2,)
    for _ in range(2):
        ours.db.execute("select poll_for_events_v1(1)")
    assert [event.payload for event in drain(ours, "g")] == [1, 2]
