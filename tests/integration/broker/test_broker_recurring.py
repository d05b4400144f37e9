"""Events that come again by a cron expression: when, and exactly one for each tick."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from tests.integration.broker.brokers import Headgate


@pytest.fixture
def broker(db: psycopg.Connection[Any]) -> Headgate:
    return Headgate(db)


def next_tick(db: psycopg.Connection[Any], cron: str, after: datetime, zone: str = "UTC") -> datetime:
    row = db.execute("select headgate.next_tick(%s, %s, %s)", [cron, after, zone]).fetchone()
    assert row is not None
    found: datetime = row[0]
    return found.astimezone(UTC)


def expected(cron: str, after: datetime) -> datetime:
    """By trying every minute, as cron does."""
    minute, hour, day, month, week_day = cron.split()
    moment = after.replace(second=0, microsecond=0)
    while True:
        moment += timedelta(minutes=1)
        days = _has(day, moment.day, 1, 31)
        week_days = _has(week_day, moment.isoweekday() % 7, 0, 7) or _has(week_day, moment.isoweekday(), 0, 7)
        fits = days and week_days if day.startswith("*") or week_day.startswith("*") else days or week_days
        if not fits or not _has(month, moment.month, 1, 12):
            moment = moment.replace(hour=23, minute=59)
        elif _has(minute, moment.minute, 0, 59) and _has(hour, moment.hour, 0, 23):
            return moment


def _has(field: str, value: int, low: int, high: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = low if first == "*" else int(first)
        end = high if first == "*" or (step and not last) else int(last or first)
        if value in range(begin, end + 1, int(step or 1)):
            return True
    return False


def some_field(chance: random.Random, low: int, high: int) -> str:
    first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
    step = chance.randint(1, 9)
    return chance.choice(["*", "*", f"{first}", f"{first}-{last}", f"*/{step}", f"{first},{last}", f"{first}-{last}/2"])


def test_ticks_are_those_of_cron(broker: Headgate) -> None:
    chance = random.Random(5)
    for _ in range(60):
        cron = " ".join(some_field(chance, *bounds) for bounds in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7)))
        after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(86400 * 300))
        assert next_tick(broker.db, cron, after) == expected(cron, after), (cron, after)


@pytest.mark.parametrize(
    ("cron", "after", "then"),
    [
        ("@daily", "2026-05-01T10:00", "2026-05-02T00:00"),
        ("0 0 29 feb *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("30 9 * * mon-fri", "2026-11-13T09:30", "2026-11-16T09:30"),
        ("0 0 * * 7", "2026-11-16T00:00", "2026-11-22T00:00"),
        ("*/15 8-17 1,15 * *", "2026-11-15T17:45", "2026-12-01T08:00"),
    ],
)
def test_some_by_hand(broker: Headgate, cron: str, after: str, then: str) -> None:
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (after, then)]
    assert next_tick(broker.db, cron, moments[0]) == moments[1]


def test_clocks_that_change(broker: Headgate) -> None:
    """A time that is left out is passed over; one that comes twice ticks once."""
    berlin = ZoneInfo("Europe/Berlin")
    spring = datetime(2026, 3, 28, 12, tzinfo=berlin)
    assert next_tick(broker.db, "30 2 * * *", spring, "Europe/Berlin") == datetime(2026, 3, 30, 2, 30, tzinfo=berlin)
    autumn = datetime(2026, 10, 24, 12, tzinfo=berlin)
    first = next_tick(broker.db, "30 2 * * *", autumn, "Europe/Berlin")
    assert first.astimezone(berlin).replace(tzinfo=None) == datetime(2026, 10, 25, 2, 30)
    second = next_tick(broker.db, "30 2 * * *", first, "Europe/Berlin")
    assert second.astimezone(berlin).replace(tzinfo=None) == datetime(2026, 10, 26, 2, 30)


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "x * * * *"],
)
def test_what_is_no_cron_expression_is_refused(broker: Headgate, cron: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        broker.db.execute("select headgate.recur('r', %s, 't')", [cron])
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        broker.db.execute("select headgate.recur('r', '0 0 31 2 *', 't')")
    assert broker.db.execute("select count(*) from headgate.recurring").fetchone() == (0,)


def ticks(db: psycopg.Connection[Any], name: str) -> list[datetime]:
    rows = db.execute("select due_at from headgate.scheduled where recurring = %s order by 1", [name]).fetchall()
    return [due_at for (due_at,) in rows]


def make_due(db: psycopg.Connection[Any], name: str) -> None:
    db.execute("update headgate.scheduled set due_at = now() - interval '3 days' where recurring = %s", [name])


def test_one_for_each_tick_and_the_next_is_there(broker: Headgate) -> None:
    """Ticks that were missed come once."""
    broker.subscribe("g", "true")
    broker.db.execute("select headgate.recur('r', '*/5 * * * *', 'beat', '[1]')")
    for turn in range(1, 4):
        make_due(broker.db, "r")
        drain_all(broker)
        assert [event.topic for event in broker.read("g", cursor=0, peek=True)] == ["beat"] * turn
        (next_one,) = ticks(broker.db, "r")
        assert next_one > datetime.now(UTC)


def drain_all(broker: Headgate) -> None:
    while broker.poll():
        pass


def test_changed_and_cancelled(broker: Headgate) -> None:
    broker.db.execute("select headgate.recur('r', '0 0 1 1 *', 'beat')")
    broker.db.execute("select headgate.recur('r', '* * * * *', 'beat')")
    (only,) = ticks(broker.db, "r")
    assert only - datetime.now(UTC) < timedelta(minutes=2)
    assert broker.db.execute("select headgate.cancel_recurring('r')").fetchone() == (True,)
    assert broker.db.execute("select headgate.cancel_recurring('r')").fetchone() == (False,)
    assert ticks(broker.db, "r") == []


def test_registered_again_as_it_was(broker: Headgate) -> None:
    """As every program does that starts: a tick that is due just then is not lost, and what it says is new."""
    broker.subscribe("g", "true")
    recur = "select headgate.recur('r', '*/5 * * * *', 'beat', %s)"
    broker.db.execute(recur, ["[1]"])
    make_due(broker.db, "r")
    for payload in ("[1]", "[2]"):
        broker.db.execute(recur, [payload])
    drain_all(broker)
    assert [event.payload for event in broker.read("g", cursor=0, peek=True)] == [[2]]
    (next_one,) = ticks(broker.db, "r")
    broker.db.execute(recur, ["[2]"])
    assert ticks(broker.db, "r") == [next_one]


def test_instances_that_register_while_ticks_are_taken(broker: Headgate, connect: Any) -> None:
    """Four programs start again and again: each tick that was due comes once, and one is always next."""
    broker.subscribe("g", "true")
    recur = "select headgate.recur('r', '* * * * *', 'beat')"
    broker.db.execute(recur)
    over = threading.Event()

    def register(session: psycopg.Connection[Any]) -> None:
        while not over.is_set():
            session.execute(recur)

    instances = [threading.Thread(target=register, args=[connect()]) for _ in range(4)]
    for instance in instances:
        instance.start()
    try:
        for turn in range(1, 31):
            make_due(broker.db, "r")
            drain_all(broker)
            assert len(broker.read("g", cursor=0, peek=True)) == turn
    finally:
        over.set()
        for instance in instances:
            instance.join()
    assert len(ticks(broker.db, "r")) == 1


def test_a_tick_that_is_taken_while_it_is_changed(broker: Headgate, connect: Any) -> None:
    """Whoever comes first: afterwards there is one next tick, of the new kind."""
    for order in ("take first", "change first"):
        broker.db.execute("select headgate.recur('r', '*/2 * * * *', 'old')")
        make_due(broker.db, "r")
        taking, changing = connect(), connect()
        take = ("delete from headgate.scheduled where recurring = 'r'", taking)
        change = ("select headgate.recur('r', '* * * * *', 'new')", changing)
        first, second = (take, change) if order == "take first" else (change, take)
        with first[1].transaction():
            first[1].execute(first[0])
            other = threading.Thread(target=second[1].execute, args=(second[0],))
            other.start()
            _await_lock(broker.db, second[1].info.backend_pid)
        other.join()
        rows = broker.db.execute("select topic from headgate.scheduled where recurring = 'r'").fetchall()
        assert rows == [("new",)], order


def _await_lock(db: psycopg.Connection[Any], pid: int) -> None:
    for _ in range(3000):
        row = db.execute("select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", [pid]).fetchone()
        if row is not None and row[0]:
            return
        threading.Event().wait(0.01)
    raise AssertionError("nobody waits")
