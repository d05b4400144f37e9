"""What SQL users see, against the reader in Python; and what the plans of the hot queries look like."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.commitlog.append import append
from headgate.commitlog.prepare import Rules, prepare
from headgate.wire.kafka import Codec, Record, encode_batch, read_records
from tests.integration.commitlog.log_topics import NOW, RULES, batch, create
from tests.property.commitlog.commitlog_strategies import codecs, record_lists

Row = tuple[Any, ...]
COLUMNS = '"offset", key, value, headers, timestamp'


@pytest.fixture(scope="module")
def door(log_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(log_url, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


def header(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"base64": base64.b64encode(value).decode()} if "\0" in text else text


def expected(record: Record) -> Row:
    moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return record.offset, record.key, record.value, [[key, header(value)] for key, value in record.headers], moment


@settings(max_examples=25)
@given(st.lists(st.tuples(record_lists, codecs, st.booleans()), min_size=1, max_size=3), st.data())
def test_sql_reads_what_python_reads(
    door: psycopg.Connection, parts: list[tuple[list[Record], Codec, bool]], data: st.DataObject
) -> None:
    name = f"t-{uuid4().hex[:10]}"
    (part,) = create(door, name)
    rows: list[Row] = []
    for records, codec, is_dated_here in parts:
        (each,) = prepare(encode_batch(records, codec=codec), Rules(after_max_ms=2**62, is_dated_here=is_dated_here))
        (outcome,) = append(door, [(part, each)])
        for record in read_records(each.data):
            row = expected(record)
            rows.append((outcome.base_offset + record.offset, *row[1:]))
    assert door.execute(f"select {COLUMNS} from kafka.messages where topic = %s order by 1", [name]).fetchall() == rows
    first, count = data.draw(st.integers(0, len(rows))), data.draw(st.integers(0, len(rows)))
    read = door.execute(f"select {COLUMNS} from kafka.read(%s, 0, %s, %s)", [name, first, count])
    assert read.fetchall() == rows[first : first + count]
    one = door.execute(f"select {COLUMNS} from kafka.message(%s, 0, %s)", [name, first])
    assert one.fetchall() == rows[first : first + 1]


def test_deleted_messages_are_not_seen(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    append(connection, [(part, batch(b"a", b"b", b"c")), (part, batch(b"d"))])
    connection.execute("select kafka.delete_records(%s, 2)", [part])
    seen = connection.execute("select value from kafka.messages where topic = %s order by 1", [topic]).fetchall()
    assert seen == [(b"c",), (b"d",)]
    assert connection.execute("select value from kafka.read(%s, 0, 0, 9)", [topic]).fetchall() == seen
    assert connection.execute("select value from kafka.message(%s, 0, 1)", [topic]).fetchall() == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("kafka.produce('no such', 'k', 'v')", "there is no topic no such"),
        ("kafka.produce('{}', 'k', 'v', '[]', 1)", "there is no partition 1"),
        ("kafka.produce('{}', null::text, 'v')", "must have a key"),
        ("kafka.produce('{}', 'k', repeat('x', 2000000))", "too large"),
        ("kafka.produce('{}', 'k', 'v', '[[1, 2]]')", "are_headers|check constraint"),
        ("kafka.produce('{}', 'k', 'v', '{{}}')", "check constraint"),
    ],
    ids=["topic", "partition", "key", "size", "header", "headers"],
)
def test_what_may_not_be_produced(connection: psycopg.Connection, topic: str, call: str, problem: str) -> None:
    create(connection, topic, configs={"cleanup.policy": "compact"})
    with pytest.raises(psycopg.Error, match=problem):
        connection.execute(f"select {call.format(topic)}")


def test_produce_is_part_of_the_transaction(connection: psycopg.Connection, topic: str) -> None:
    create(connection, topic)
    with connection.transaction(force_rollback=True):
        connection.execute("select kafka.produce(%s, 'k', 'v')", [topic])
    connection.execute("select kafka.produce(%s, 'k'::bytea, null, %s, 0)", [topic, json.dumps([["h", None]])])
    rows = connection.execute("select i.key, i.value from kafka.inbox as i join kafka.topics as t on t.id = topic_id"
                              " where name = %s", [topic]).fetchall()  # fmt: skip
    assert rows == [(b"k", None)]
    connection.execute("delete from kafka.inbox")


def busy_log(connection: psycopg.Connection, topic: str) -> tuple[int, list[int]]:
    """A partition among others whose 300 batches lie in three segments, a hundred in each."""
    parts = create(connection, topic, 4, {"retention.ms": "123456"})
    class_id = connection.execute("select class_id from kafka.partitions where part_id = %s", [parts[0]]).fetchone()
    assert class_id is not None
    for segment in range(3):
        connection.execute("select kafka.open_segment(%s)", class_id)
        for turn in range(5):
            time = NOW + 1000 * segment + 100 * turn
            append(connection, [(part, batch(b"v", at_ms=time)) for part in parts for _ in range(20)])
    rows = connection.execute("select segment_id from kafka.spans where part_id = %s order by first_offset", [parts[1]])
    return parts[1], [segment_id for (segment_id,) in rows]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize("function", ["fetch_from", "batch_from"])
def test_plan_is_one_index_scan_of_one_segment(connection: psycopg.Connection, topic: str, function: str) -> None:
    """Of the statement as it is inside the function; `batch_from` is what `at_time` takes its steps with."""
    part, segments = busy_log(connection, topic)
    row = connection.execute("select prosrc from pg_proc where proname = %s", [function]).fetchone()
    assert row is not None
    found = re.search(r"select b\.base_offset.*?order by b\.last_offset", row[0], re.DOTALL)
    assert found is not None
    statement = re.sub(r"\binto (\w+, )*\w+\n", "\n", found[0])
    for name, value in (
        ("part_ids[want]", part),
        ("of_part", part),
        ("span.segment_id", segments[1]),
        ("span.stop", 200),
        ("offsets[want]", 150),
        ("first", 150),
        ("least_ts", NOW),
    ):
        statement = statement.replace(name, str(value))
    connection.execute("analyze kafka.batches")
    plan = connection.execute(f"explain (format json) {statement} limit 1").fetchone()
    assert plan is not None
    scans = [node for node in nodes(plan[0][0]["Plan"]) if "Relation Name" in node]
    assert [(node["Node Type"], node["Relation Name"]) for node in scans] == [("Index Scan", f"segment_{segments[1]}")]
    assert "Sort" not in [node["Node Type"] for node in nodes(plan[0][0]["Plan"])]
    assert "last_offset" in scans[0]["Index Cond"]


@pytest.mark.parametrize(
    ("call", "is_used"),
    [
        ("kafka.fetch_from(array[{part}], array[150::bigint], array[1000], 1000, array[true])", [False, True, False]),
        ("kafka.at_time({part}, {time}, 0)", [True, True, False]),  # halving: 150, then 75, then 113 ...
    ],
    ids=["fetch", "at_time"],
)
def test_hot_calls_read_little(connection: psycopg.Connection, topic: str, call: str, is_used: list[bool]) -> None:
    """As PostgreSQL counts it: no sequential scan, no segment without a reason, some rows of hundreds."""
    part, segments = busy_log(connection, topic)
    statement = f"select * from {call.format(part=part, time=NOW + 1100)}"

    def counts() -> list[Row]:
        names = [f"segment_{segment}" for segment in segments]
        return connection.execute(
            "select seq_scan, idx_scan, idx_tup_fetch from pg_stat_xact_user_tables"
            " where schemaname = 'kafka' and relname = any(%s) order by relid",
            [names],
        ).fetchall()

    with connection.transaction():  # in which nothing is added up elsewhere, on any version
        before = counts()
        assert connection.execute(statement).fetchone() is not None
        after = counts()
    assert [row[0] for row in after] == [row[0] for row in before]
    assert [new[1] > old[1] for old, new in zip(before, after, strict=True)] == is_used
    assert sum(new[2] - old[2] for old, new in zip(before, after, strict=True)) < 70


def test_a_topic_may_stay_out_of_sql(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    (each,) = prepare(encode_batch([Record(0, NOW, b"k", b"v")]), Rules(for_sql=False))
    append(connection, [(part, each)])
    assert connection.execute("select count(*) from kafka.messages where topic = %s", [topic]).fetchone() == (0,)
    assert RULES.for_sql
