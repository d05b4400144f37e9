"""Nothing lost, nothing twice, order kept: random histories, and many who work and die at once."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.broker.brokers import BY_TOPIC, Headgate, Read, drain
from tests.integration.broker.conftest import Connect

SESSIONS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["publish", "savepoint", "release", "back", "commit", "rollback"]),
            st.integers(0, SESSIONS - 1),
        ),
        st.tuples(st.just("poll"), st.sampled_from([1, 2, 3, 100])),
        st.tuples(st.just("read"), st.sampled_from([1, 2, 5, 100])),
        st.tuples(st.just("again"), st.just(100)),
        st.tuples(st.just("maintain"), st.sampled_from([0, 40, 300])),
    ),
    max_size=40,
)


class Writer:
    """A session whose transaction stays open between its steps, and what it will have published if it commits."""

    def __init__(self, db: psycopg.Connection[Any], topic: str) -> None:
        self.db, self.topic = db, topic
        self.saved: list[int] = []
        self.pending: list[int] = []

    def publish(self, number: int) -> None:
        self.db.execute("select publish(%s, to_jsonb(%s::int))", [self.topic, number])
        self.pending.append(number)

    def savepoint(self) -> None:
        self.db.execute(f"savepoint s{len(self.saved)}".encode())
        self.saved.append(len(self.pending))

    def release(self) -> None:
        if self.saved:
            self.saved.pop()
            self.db.execute(f"release savepoint s{len(self.saved)}".encode())

    def back(self) -> None:
        if self.saved:
            del self.pending[self.saved.pop() :]
            self.db.execute(f"rollback to savepoint s{len(self.saved)}".encode())
            self.db.execute(f"release savepoint s{len(self.saved)}".encode())

    def commit(self) -> list[int]:
        self.db.commit()
        done, self.pending, self.saved = self.pending, [], []
        return done

    def rollback(self) -> None:
        self.db.rollback()
        self.pending, self.saved = [], []


@pytest.fixture
def sessions(connect: Connect) -> list[psycopg.Connection[Any]]:
    return [connect(autocommit=False) for _ in range(SESSIONS)]


class History:
    """One random history on a group that reads deliveries and one that reads the log."""

    def __init__(self, broker: Headgate, sessions: list[psycopg.Connection[Any]]) -> None:
        name = uuid4().hex[:8]
        self.broker = broker
        self.groups = (f"routed-{name}", f"log-{name}")
        self.topic = f"t-{name}"
        broker.subscribe(self.groups[0], BY_TOPIC, {"topic": self.topic})
        broker.subscribe(self.groups[1])
        self.writers = [Writer(session, self.topic) for session in sessions]
        self.committed: list[list[int]] = []
        self.got: dict[str, list[Read]] = {group: [] for group in self.groups}
        self.number = 0

    def step(self, action: str, value: int) -> None:
        if action == "poll":
            self.broker.db.execute("select poll_for_events_v1(%s)", [value])
        elif action == "read":
            for group in self.groups:
                self.take(group, value)
        elif action == "again":  # reading without acknowledging gives the same again
            for group in self.groups:
                assert self.broker.read(group, value) == self.broker.read(group, value)
        elif action == "maintain":
            self.broker.maintain(f"{value} minutes")
        elif action == "publish":
            self.number += 1
            self.writers[value].publish(self.number)
        elif action == "commit":
            self.committed.append(self.writers[value].commit())
        else:
            getattr(self.writers[value], action)()

    def take(self, group: str, chunk: int) -> bool:
        events = self.broker.read(group, chunk)
        self.got[group] += [event for event in events if event.topic == self.topic]
        if events:
            self.broker.ack(group, events[0].cursor)
        return bool(events)

    def finish(self) -> None:
        self.committed += [writer.commit() for writer in self.writers]
        self.broker.poll()
        for group in self.groups:
            while self.take(group, 7):
                pass
            numbers = [event.payload for event in self.got[group]]
            assert sorted(numbers) == sorted(number for part in self.committed for number in part)
            for part in self.committed:  # what one transaction published comes in its order
                assert [number for number in numbers if number in set(part)] == part
        assert self.broker.db.execute("select count(*) from unread_events").fetchone() == (0,)
        self.broker.db.execute("delete from subscriptions")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_histories(
    steps: list[tuple[str, int]], db: psycopg.Connection[Any], sessions: list[psycopg.Connection[Any]]
) -> None:
    history = History(Headgate(db), sessions)
    for action, value in steps:
        history.step(action, value)
    history.finish()


def test_a_poll_in_the_transaction_that_publishes(db: psycopg.Connection[Any]) -> None:
    """What a transaction publishes after its own poll is new, although its number was in that poll's snapshot."""
    broker = Headgate(db)
    broker.subscribe("g", "e.topic is not null")
    with db.transaction():
        broker.publish(("t", 1))
        broker.on(db).db.execute("select poll_for_events()")
        broker.publish(("t", 2))
        db.execute("select poll_for_events()")
    broker.poll()
    assert [event.payload for event in drain(broker, "g")] == [1, 2]


class Worker(threading.Thread):
    """Does something again and again, on a session that others may end."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], work: Callable[[psycopg.Connection[Any]], None]
    ) -> None:
        super().__init__(daemon=True)
        self.connect, self.work = connect, work
        self.pid = 0
        self.ending = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self._live()
        except Exception as error:
            self.error = error

    def _live(self) -> None:
        with ExitStack() as stack:
            try:
                db = stack.enter_context(self.connect())
                self.pid = db.info.backend_pid
                while not self.ending.is_set():
                    self.work(db)
            except (psycopg.OperationalError, psycopg.Rollback):
                self.pid = 0  # it was ended; another one takes its place


def write(db: psycopg.Connection[Any], chance: random.Random) -> None:
    """As in the recipe: an old transaction, sometimes a pause, one to three keys, some given up."""
    try:
        with db.transaction():
            db.execute("insert into unrelated values (1)")
            if chance.random() < 0.2:
                db.execute("select pg_sleep(%s)", [chance.random() / 50])
            for key in sorted(chance.sample(range(8), chance.randint(1, 3))):
                with db.transaction():
                    row = db.execute("update keys set v = v + 1 where k = %s returning v", [key]).fetchone()
                    assert row is not None
                    db.execute("select publish(%s, to_jsonb(%s::int))", [f"key-{key}", row[0]])
                    db.execute("insert into ledger values (%s, %s)", [key, row[0]])
                    if chance.random() < 0.05:
                        raise psycopg.Rollback
            if chance.random() < 0.15:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def poll(db: psycopg.Connection[Any], chance: random.Random) -> None:
    db.execute("select poll_for_events_v1(%s)", [chance.choice([1, 3, 20, 1000])])
    if chance.random() < 0.1:
        db.execute("select pg_sleep(0.05)")


def read(db: psycopg.Connection[Any], group: str, seen: list[tuple[int, int, str, int]], chance: random.Random) -> None:
    """Keeps (position, id, topic, value) of all that it acknowledged. Its name outlives its session."""
    rows = db.execute(
        "select pos, id, topic, payload, next_cursor, epoch from read_next_events(%s, null, %s, false, 'me')",
        [group, chance.choice([1, 7, 100])],
    ).fetchall()
    if rows:
        db.execute("select set_group_cursor(%s, %s, false, 'me', %s)", [group, rows[-1][4], rows[-1][5]])
        seen += [(pos, event_id, topic, value) for pos, event_id, topic, value, _, _ in rows]


def test_a_crowd_that_is_killed(database: str, db: psycopg.Connection[Any]) -> None:
    """H22."""
    db.execute("create table unrelated (n int)")
    db.execute("create table keys (k int primary key, v int)")
    db.execute("create table ledger (k int, v int)")
    db.execute("insert into keys select k, 0 from generate_series(0, 7) as k")
    db.execute("select subscribe('log')")
    for key in range(8):
        db.execute("select subscribe('routed', %s, jsonb_build_object('topic', %s::text))", [BY_TOPIC, f"key-{key}"])
    seen: dict[str, list[tuple[int, int, str, int]]] = {"log": [], "routed": []}
    chance = random.Random(7)

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(database, autocommit=True, options="-c search_path=headgate")

    works: list[Callable[[psycopg.Connection[Any]], None]] = []
    works += [partial(write, chance=random.Random(seed)) for seed in range(4)]
    works += [partial(poll, chance=random.Random(seed)) for seed in range(4, 6)]
    works += [partial(read, group=group, seen=rows, chance=random.Random(6)) for group, rows in seen.items()]
    workers = [Worker(connect, work) for work in works]
    for worker in workers:
        worker.start()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        time.sleep(0.1)
        if victim := chance.choice(workers).pid:
            db.execute("select pg_terminate_backend(%s)", [victim])
    for worker in workers:
        worker.ending.set()
    for worker in workers:
        worker.join(30)
        assert worker.error is None
        assert not worker.is_alive()
    Headgate(db).poll()
    for group, rows in seen.items():
        before = -1
        while before < len(rows):
            before = len(rows)
            read(db, group, rows, chance)
    committed = {(key, value) for key, value in db.execute("select k, v from ledger")}
    assert len(committed) > 200
    for group, rows in seen.items():
        assert {(int(topic.partition("-")[2]), value) for _, _, topic, value in rows} == committed, group
        positions = {event_id: pos for pos, event_id, _, _ in rows}
        assert len({(event_id, pos) for pos, event_id, _, _ in rows}) == len(positions), "delivered twice"
        values: dict[str, list[int]] = defaultdict(list)
        for _, _, topic, value in sorted(set(rows)):
            values[topic].append(value)
        assert all(rising == sorted(rising) for rising in values.values()), "out of order"


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=6))
def test_ids_and_positions_rise(sizes: list[tuple[int, bool]], db: psycopg.Connection[Any]) -> None:
    """H14: in every batch, across batches, and across partitions."""
    broker = Headgate(db)
    group = uuid4().hex
    broker.subscribe(group, "e.topic is not null")
    ids: list[int] = []
    for size, rolls in sizes:
        ids += broker.publish(*[("t", number) for number in range(size)])
        broker.poll()
        if rolls:
            broker.maintain("40 minutes")
    assert ids == sorted(set(ids))
    rows = db.execute("select id, pos from read_next_events(%s, null, 10000)", [group]).fetchall()
    assert [event_id for event_id, _ in rows] == ids
    positions = [pos for _, pos in rows]
    assert positions == sorted(set(positions))
    db.execute("delete from subscriptions")
