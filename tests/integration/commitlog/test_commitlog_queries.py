"""The queries that people type first: they find what the view finds, and cost no more in a long topic."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from headgate.commitlog.append import append
from headgate.commitlog.prepare import prepare
from headgate.wire.kafka import Record, encode_batch
from tests.integration.commitlog.log_topics import NOW, RULES, create
from tests.stock import both_servers

COLUMNS = 'partition, "offset", global_offset, key, value, headers, "timestamp"'


@pytest.fixture(scope="module", params=both_servers)
def door(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    url = request.getfixturevalue("log_url" if request.param == "embedded" else "stock_log_url")
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def written(door: psycopg.Connection, *, batches: int, partitions: int) -> str:
    """A topic whose batches go anywhere, among those of another one, with times that rise by and large."""
    name, chance = f"t-{uuid4().hex[:10]}", random.Random(batches)
    parts = create(door, name, partitions)
    (other,) = create(door, f"{name}-other")
    for turn in range(batches):
        at = NOW - (batches - turn) * 1000
        records = [
            Record(index, at + chance.randrange(-900, 900), b"k", b"%d" % turn)
            for index in range(chance.randrange(1, 9))
        ]
        (each,) = prepare(encode_batch(records), RULES)
        append(door, [(chance.choice([*parts, other]), each)])
    return name


def rows(door: psycopg.Connection, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    return door.execute(query.encode(), arguments).fetchall()


@pytest.fixture(scope="module")
def topic(door: psycopg.Connection) -> str:
    return written(door, batches=300, partitions=3)


@pytest.fixture(scope="module")
def all_rows(door: psycopg.Connection, topic: str) -> list[tuple[Any, ...]]:
    return rows(door, f"select {COLUMNS} from kafka.messages where topic = %s order by global_offset", topic)


@pytest.mark.parametrize("n", [1, 10, 500, 100_000])
def test_newest(door: psycopg.Connection, topic: str, all_rows: list[tuple[Any, ...]], n: int) -> None:
    assert rows(door, f"select {COLUMNS} from kafka.newest(%s, %s)", topic, n) == all_rows[::-1][:n]
    second = [row for row in all_rows[::-1] if row[0] == 1]
    assert rows(door, f"select {COLUMNS} from kafka.newest(%s, %s, 1)", topic, n) == second[:n]


def test_after_every_position(door: psycopg.Connection, topic: str, all_rows: list[tuple[Any, ...]]) -> None:
    """Also of positions that another topic has, before the first and behind the last."""
    first, last = all_rows[0][2], all_rows[-1][2]
    for position in [-1, first - 1, *range(first, last + 3)]:
        behind = [row for row in all_rows if row[2] > position][:7]
        assert rows(door, f"select {COLUMNS} from kafka.after(%s, %s, 7)", topic, position) == behind


def test_since(door: psycopg.Connection, topic: str, all_rows: list[tuple[Any, ...]]) -> None:
    for at in range(NOW - 302_000, NOW + 3000, 5300):
        moment = datetime.fromtimestamp(at / 1000, UTC)
        later = [row for row in all_rows if row[6] >= moment]
        assert rows(door, f"select {COLUMNS} from kafka.since(%s, %s, 100000)", topic, moment) == later


def test_nothing_is_there(door: psycopg.Connection) -> None:
    name = f"t-{uuid4().hex[:10]}"
    create(door, name)
    for call in ("newest(%s)", "after(%s, 0)", "since(%s, now())", "newest('nowhere' || %s)"):
        assert rows(door, f"select * from kafka.{call}", name) == []


def test_the_view_names_what_is_answered_by_index(door: psycopg.Connection) -> None:
    """In the words of its comments: each function is there, with as many arguments."""
    ((view,),) = rows(door, "select obj_description('kafka.messages'::regclass)")
    columns = "select col_description(attrelid, attnum) from pg_attribute where attrelid = 'kafka.messages'::regclass"
    told = " ".join([view, *(text for (text,) in rows(door, columns) if text)])
    named = dict(re.findall(r"kafka\.(\w+)\(([^)]*)\)", told))
    assert set(named) == {"newest", "since", "after", "read", "message"}
    for name, arguments in named.items():
        ((most, least, comment),) = rows(
            door,
            "select pronargs, pronargs - pronargdefaults, obj_description(oid) from pg_proc"
            " where proname = %s and pronamespace = 'kafka'::regnamespace",
            name,
        )
        assert least <= len(arguments.split(",")) <= most
        assert comment.endswith("by index")


@pytest.mark.parametrize("condition", ["topic = %s", "topic = %s and partition = 1"])
def test_a_topic_is_found_by_index_in_the_view(door: psycopg.Connection, topic: str, condition: str) -> None:
    """What other topics hold costs nothing."""
    query = f"select count(*) from kafka.messages where {condition}"
    before = blocks(door, query, topic)
    written(door, batches=600, partitions=1)
    assert blocks(door, query, topic) < 1.5 * before + 60


def blocks(door: psycopg.Connection, query: str, topic: str) -> int:
    """How many pages a query looks at."""
    door.execute(query.encode(), [topic])  # PostgreSQL has read its catalogue by now
    ((told,),) = rows(door, f"explain (analyze, buffers, format json) {query}", topic)
    plan = told[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture(scope="module")
def long_topics(door: psycopg.Connection) -> tuple[str, str]:
    """One has four times the batches of the other."""
    return written(door, batches=1200, partitions=2), written(door, batches=4800, partitions=2)


@pytest.mark.parametrize(
    "query",
    [
        "select * from kafka.newest(%s, 10)",
        "select * from kafka.after(%s, (select next_offset - 40 from kafka.states where part_id = 0), 10)",
        f"select * from kafka.since(%s, to_timestamp({NOW / 1000}) - interval '5 seconds', 10)",
        "select * from kafka.since(%s, now() - interval '30 days', 10)",
        "select * from kafka.after(%s, -1, 10)",
    ],
    ids=["newest", "last", "last seconds", "from the first time", "from the first"],
)
def test_a_long_topic_costs_no_more(door: psycopg.Connection, long_topics: tuple[str, str], query: str) -> None:
    """Halving takes a step more each time that a topic doubles; a scan would take four times as long."""
    long, longer = long_topics
    assert blocks(door, query, longer) < 1.5 * blocks(door, query, long) + 60
