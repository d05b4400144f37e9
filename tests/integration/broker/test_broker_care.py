"""`headgate broker`, for whoever looks after it: dead letters, pauses, conditions, recurring events, top."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from typer.testing import Result

from headgate.broker import BrokerClient, Event, Message, Subscription
from headgate.model import UsageError
from tests.integration.broker.clients import eventually, running
from tests.integration.broker.test_broker_commands import broker


@pytest.fixture
def run(database: str) -> Callable[..., Result]:
    return lambda *arguments, **kwargs: broker(database, *arguments, **kwargs)


def bury(db: psycopg.Connection[Any], group: str, *topics: str) -> list[int]:
    """Dead letters, as a handler leaves them."""
    sid = db.execute("select headgate.subscribe(%s, 'true')", [group]).fetchone()
    assert sid is not None
    buried = []
    for topic in topics:
        event = db.execute("select headgate.publish(%s, '[1]')", [topic]).fetchone()
        assert event is not None
        query = "select headgate.bury_v1(%s, 'h', array[%s]::bigint[], 3, 'ValueError: no')"
        buried += [row[0] for row in db.execute(query, [sid[0], event[0]])]
    return buried


def test_dead_letters(db: psycopg.Connection[Any], run: Callable[..., Result]) -> None:
    one, two, three = bury(db, "mailer", "a", "b", "c")
    (other,) = bury(db, "audit", "d")
    shown = json.loads(run("dead-letters", "list", "--group", "mailer", "--json").stdout)
    assert [(row["id"], row["topic"], row["error"]) for row in shown] == [
        (three, "c", "ValueError: no"),
        (two, "b", "ValueError: no"),
        (one, "a", "ValueError: no"),
    ]
    assert json.loads(run("dead-letters", "show", str(one), "--json").stdout)["payload"] == [1]
    assert "1 dead letters are tried again" in run("dead-letters", "redrive", str(one)).stderr
    assert db.execute("select topic from headgate.scheduled").fetchall() == [("a",)]
    assert "1 dead letters thrown away" in run("dead-letters", "purge", str(two), "--yes").stderr
    assert run("dead-letters", "purge", "--group", "mailer", input="n\n").exit_code == 1
    assert db.execute("select id from headgate.dead_letters order by 1").fetchall() == [(three,), (other,)]
    assert "1 dead letters are tried again" in run("dead-letters", "redrive", "--group", "mailer").stderr
    assert db.execute("select id from headgate.dead_letters").fetchall() == [(other,)]


@pytest.mark.parametrize(
    "arguments", [("redrive",), ("purge", "--yes"), ("redrive", "999"), ("purge", "999", "--yes"), ("show", "999")]
)
def test_nothing_named_is_not_everything(
    db: psycopg.Connection[Any], run: Callable[..., Result], arguments: tuple[str, ...]
) -> None:
    bury(db, "mailer", "a")
    assert isinstance(run("dead-letters", *arguments).exception, UsageError)
    assert db.execute("select count(*) from headgate.dead_letters").fetchone() == (1,)


def test_dead_letters_of_another_group_are_not_touched(db: psycopg.Connection[Any], run: Callable[..., Result]) -> None:
    (letter,) = bury(db, "mailer", "a")
    assert isinstance(run("dead-letters", "purge", str(letter), "--group", "audit", "--yes").exception, UsageError)
    assert db.execute("select count(*) from headgate.dead_letters").fetchone() == (1,)


def test_recurring_events(run: Callable[..., Result]) -> None:
    made = run("recurring", "set", "nightly", "0 3 * * *", "report.due", "[1]", "--timezone", "Europe/Berlin")
    assert made.exit_code == 0, made.exception
    (row,) = json.loads(run("recurring", "list", "--json").stdout)
    assert (row["name"], row["cron"], row["topic"]) == ("nightly", "0 3 * * *", "report.due")
    assert isinstance(run("recurring", "set", "bad", "61 * * * *", "t").exception, UsageError)
    assert isinstance(run("recurring", "set", "bad", "* * * * *", "t", "--timezone", "Mars").exception, UsageError)
    assert isinstance(run("recurring", "set", "bad", "* * * * *", "t", "{").exception, UsageError)
    assert "comes no more" in run("recurring", "cancel", "nightly").stderr
    assert isinstance(run("recurring", "cancel", "nightly").exception, UsageError)


def test_top(db: psycopg.Connection[Any], run: Callable[..., Result]) -> None:
    bury(db, "mailer", "a")
    db.execute("select headgate.poll_for_events()")
    db.execute("select headgate.pause_group('mailer')")
    shown = run("top", "--count", "2", "--interval", "0.2")
    assert shown.exit_code == 0, shown.exception
    assert "mailer" in shown.stdout
    assert "paused" in shown.stdout


def test_conditions(db: psycopg.Connection[Any], run: Callable[..., Result]) -> None:
    condition = "e.topic = 'a' or e.topic = 'b'"
    db.execute("select headgate.subscribe('g', %s)", [condition])
    listed = json.loads(run("conditions", "list", "--json").stdout)
    (row,) = [each for each in listed if each["source"] == condition]
    assert (row["source"], row["subscriptions"], row["parked"]) == (condition, 1, 0)
    assert isinstance(run("conditions", "resume", str(row["id"])).exception, UsageError)


def test_a_paused_group_gets_nothing_until_it_is_resumed(database: str, run: Callable[..., Result]) -> None:
    """Also while a client reads it; and nothing is lost or out of order."""

    async def story() -> None:
        got: list[int] = []

        async def handle(events: Sequence[Event]) -> None:
            got.extend(event.payload for event in events)

        async with BrokerClient(database, group="g") as client, running(client):
            await client.register_reliable_handler(Subscription.to_topics("t"), handle, name="h")
            await client.publish(Message("t", 1))
            await eventually(lambda: got == [1])
            assert "is paused" in (await asyncio.to_thread(run, "pause", "g")).stderr
            assert "was paused already" in (await asyncio.to_thread(run, "pause", "g")).stderr
            for number in range(2, 6):
                await client.publish(Message("t", number))
            with psycopg.connect(database, autocommit=True) as db:
                query = "select behind from headgate.group_status where group_id = 'g'"
                await eventually(lambda: db.execute(query).fetchone() == (4,))
            assert got == [1]
            assert "goes on" in (await asyncio.to_thread(run, "resume", "g")).stderr
            assert "was not paused" in (await asyncio.to_thread(run, "resume", "g")).stderr
            await eventually(lambda: len(got) >= 5)
        assert got == [1, 2, 3, 4, 5]

    asyncio.run(story())


def test_no_such_group(run: Callable[..., Result]) -> None:
    for command in ("pause", "resume"):
        assert isinstance(run(command, "nobody").exception, UsageError)
