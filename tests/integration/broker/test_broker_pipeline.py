"""Events of the broker through Spark: as a source that a group's cursor follows, and as a destination."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.destinations.broker import BrokerDestination
from headgate.destinations.memory import MemoryDestination
from headgate.model import AuthError, ConnectError, DataError, StateError, Status, UsageError
from headgate.model.position import Position, origin_of
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.broker.group import BrokerGroup, StreamOffset
from headgate.sources.broker.options import BrokerSourceOptions
from tests.contract.destinations.test_contract import rows

ROWS = 3000
NO_END = 2**63 - 1
Run = Callable[[str, dict[str, Any], dict[str, Any], dict[str, Any]], Supervisor]


def group(url: str, **options: str) -> BrokerGroup:
    return BrokerGroup(BrokerSourceOptions.from_spark({"url": url, "group": "spark"} | options))


def read(group: BrokerGroup, after: StreamOffset, end: StreamOffset) -> list[dict[str, Any]]:
    begin = after.pos if end.after is None else end.after
    return [row for batch in group.read(begin, end) for row in batch.to_pylist()]


def payloads(rows: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(row["payload"]) for row in rows]


def publish(db: psycopg.Connection[Any], *events: tuple[str, Any]) -> None:
    topics, payloads = [topic for topic, _ in events], [json.dumps(payload) for _, payload in events]
    db.execute("select publish_v1(%s, %s::jsonb[])", [topics, payloads])


def test_events_are_read_again_until_they_are_committed(db: psycopg.Connection[Any], database: str) -> None:
    source = group(database, subscribe="orders,refunds")
    start = source.begin()
    publish(db, *[("orders" if n % 2 else "other", n) for n in range(100)], ("refunds", 'a "quoted"\n, line \\ é'))
    end = source.plan(start, 1000, NO_END)
    first = read(source, start, end)
    assert [row["payload"] for row in first][:-1] == [str(n) for n in range(1, 100, 2)]
    assert json.loads(first[-1]["payload"]) == 'a "quoted"\n, line \\ é'
    assert first[-1]["metadata"] is None
    assert {row["topic"] for row in first} == {"orders", "refunds"}
    assert [row["_position"] for row in first] == sorted(row["_position"] for row in first)
    assert len({tuple(row["subscription_ids"]) for row in first}) == 1
    again = pickle.loads(pickle.dumps(source))
    assert read(again, start, end) == first
    middle = source.plan(start, 10, NO_END)
    assert read(again, start, middle) + read(again, middle, end) == first
    source.commit(end)
    other = group(database, subscribe="orders,refunds")
    assert other.begin().pos == end.pos
    other.close()
    assert source.plan(end, 10, NO_END) == end
    source.release()
    again.close()


@pytest.mark.parametrize("when", ["planned", "read", "committed", "restarted"])
def test_a_group_that_is_moved_is_read_from_there(db: psycopg.Connection[Any], database: str, when: str) -> None:
    """Whatever the stream is doing at that moment, also by a program that knows only the checkpoint."""
    source = group(database)
    start = source.begin()
    publish(db, *[("orders", n) for n in range(10)])
    middle = source.plan(start, 4, NO_END)
    first = read(source, start, middle)
    source.commit(middle)
    end = source.plan(middle, 10, NO_END)
    if when != "planned":
        first += read(source, middle, end)
    if when in ("committed", "restarted"):
        source.commit(end)
    db.execute("select seek_v1('spark', 0)")
    if when == "planned":
        first += read(source, middle, end)
    if when == "restarted":
        source.release()
        source = group(database)
        end = StreamOffset.from_spark(json.loads(json.dumps(end.as_dict())))
    source.commit(end)
    assert payloads(first) == list(range(10))
    moved = source.plan(end, 6, NO_END)
    again = read(source, end, moved)
    source.commit(moved)
    last = source.plan(moved, 10, NO_END)
    again += read(source, moved, last)
    assert payloads(again) == list(range(10))
    assert min(row["_position"] for row in again) > max(row["_position"] for row in first)
    source.commit(last)
    assert db.execute("select behind from group_status").fetchall() == [(0,)]
    db.execute("select seek_v1('spark', %s)", [start.pos])
    publish(db, ("orders", 10))
    db.execute("select poll_for_events_v1()")
    db.execute("select seek_v1('spark', (select max(pos) from dispatcher_state))")
    ahead = source.plan(last, 10, NO_END)
    assert read(source, last, ahead) == []
    source.commit(ahead)
    publish(db, ("orders", 11))
    assert payloads(read(source, ahead, source.plan(ahead, 10, NO_END))) == [11]
    source.release()


def test_two_streams_do_not_pass_for_one_writer(db: psycopg.Connection[Any], database: str) -> None:
    source = group(database)
    start = source.begin()
    publish(db, ("orders", 1))
    (row,) = read(source, start, source.plan(start, 10, NO_END))
    assert origin_of(f"headgate-one-{row['_position']}") == "headgate-one"
    assert row["_position"] > "0000000257698037760"  # as 0.2 wrote them
    assert Position.parse(row["_position"]).major == row["pos"]
    source.release()


def test_retries_are_not_for_a_stream(db: psycopg.Connection[Any], database: str) -> None:
    source = group(database)
    start = source.begin()
    publish(db, ("orders", 1))
    end = source.plan(start, 10, NO_END)
    (row,) = read(source, start, end)
    statement = "select retry_v1(%s, 'someone', array[%s]::bigint[], 2, 'no', interval '0')"
    db.execute(statement, [row["subscription_ids"][0], row["id"]])
    publish(db, ("orders", 2))
    assert [found["payload"] for found in read(source, end, source.plan(end, 10, NO_END))] == ["2"]
    source.close()


def test_a_group_has_one_reader(db: psycopg.Connection[Any], database: str) -> None:
    source, other = group(database), group(database, owner="another")
    start = source.begin()
    publish(db, ("orders", 1))
    end = source.plan(start, 10, NO_END)
    with pytest.raises(StateError, match="another reader"):
        other.plan(start, 10, NO_END)
    db.execute("update subscription_groups set lease_until = now() - interval '1 second'")
    assert other.plan(start, 10, NO_END).pos == end.pos
    with pytest.raises(StateError, match="another reader"):
        source.commit(end)
    source.close()
    other.release()


def test_what_is_gone_stops_the_stream_unless_told_otherwise(db: psycopg.Connection[Any], database: str) -> None:
    source = group(database, subscribe="orders")
    start = source.begin()
    publish(db, ("orders", 1), ("orders", 2))
    end = source.plan(start, 10, NO_END)
    db.execute("delete from events where payload = '1'")
    with pytest.raises(StateError, match="gone"):
        read(source, start, end)
    lenient = group(database, subscribe="orders", failOnDataLoss="false")
    assert [row["payload"] for row in read(lenient, start, end)] == ["2"]
    source.close()
    lenient.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subscribe": "a", "condition": "true"}, UsageError),
        ({"params": "[]"}, UsageError),
        ({"maxOffsetsPerTrigger": "0"}, UsageError),
        ({"schema": "nowhere"}, StateError),
        ({"condition": "pg_sleep(1) is null"}, AuthError),
        ({"url": "postgres://127.0.0.1:1/none"}, ConnectError),
    ],
    ids=["both", "params", "empty", "schema", "condition", "server"],
)
def test_mistakes_are_told(database: str, options: dict[str, str], error: type[Exception]) -> None:
    values = {"url": database, "group": "spark"} | options
    with pytest.raises(error):
        BrokerGroup(BrokerSourceOptions.from_spark(values)).begin()


def test_a_payload_that_is_no_json_fails_its_topic_alone(db: psycopg.Connection[Any], database: str) -> None:
    good = pa.RecordBatch.from_pydict(
        {
            "_topic": ["a", "b", "a"],
            "_message_id": ["p-1", "p-2", "p-3"],
            "_payload": pa.array([b'{"n": 1}', b"not json", b"[2]"], pa.binary()),
        }
    )
    destination = BrokerDestination("d", database)
    with destination.open() as sender:
        sender.send(good)
        result = sender.finish()
    assert [(failure["topic"], failure["rows"]) for failure in result.failures] == [("b", 1)]
    found = db.execute("select topic, payload, metadata from events where id > 0 order by id").fetchall()
    assert found == [("a", {"n": 1}, {"message_id": "p-1"}), ("a", [2], {"message_id": "p-3"})]
    with BrokerDestination("d", database, exclusive=True).open() as sender:
        sender.send(good)
        with pytest.raises(DataError, match="JSON"):
            sender.finish()


def test_a_writer_that_was_thought_dead_adds_nothing(db: psycopg.Connection[Any], database: str) -> None:
    destination = BrokerDestination("d", database, payload="text", exclusive=True)
    batch = rows("orders", count=100)
    for _ in range(2):
        with destination.open() as sender:
            sender.send(batch)
            result = sender.finish()
    assert result.duplicates == 100
    assert db.execute("select count(*) from events where id > 0").fetchall() == [(100,)]


@pytest.fixture
def run(spark: SparkSession, database: str, tmp_path: Path) -> Run:
    def run_once(
        name: str, source: dict[str, Any], destination: dict[str, Any], pipeline: dict[str, Any]
    ) -> Supervisor:
        config = Config.model_validate(
            {
                "project": {"name": "test", "data_dir": tmp_path},
                "sources": {"from": source},
                "destinations": {"to": destination},
                "pipelines": {name: {"source": "from", "destinations": ["to"], **pipeline}},
            }
        )
        spec = assemble(config, nats_url=None, postgres_url=database, until_caught_up=True)[0]
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        assert supervisor.join(120)
        assert supervisor.report.status is Status.STOPPED, supervisor.report.error
        return supervisor

    return run_once


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_rows_into_the_broker_and_out_of_it(run: Run, db: psycopg.Connection[Any]) -> None:
    db.execute("select subscribe('readers')")
    made = {"type": "random", "rows_per_second": 0, "rows": ROWS, "max_rows_per_batch": 1000, "partitions": 2}
    routing = {"topic_column": "kind", "default_topic": "other"}
    into = run("into", made, {"type": "broker"}, {"routing": routing})
    assert into.report.rows_total == ROWS
    found = db.execute("select topic, (payload ->> 'id')::int from events where id > 0").fetchall()
    assert sorted(number for _, number in found) == list(range(ROWS))
    assert len({topic for topic, _ in found}) > 1
    source = {"type": "broker", "group": "readers", "max_rows_per_batch": 1000, "partitions": 2}
    raw = {"format": "raw", "payload_column": "payload", "topic": "{topic}"}
    out = run("out", source, {"type": "memory", "max_rows": 2 * ROWS}, raw)
    memory = out.spec.destinations[0]
    assert isinstance(memory, MemoryDestination)
    assert sorted(json.loads(message.payload)["id"] for message in memory.messages) == list(range(ROWS))
    assert out.report.batches_total >= 3
    assert db.execute("select behind from group_status where group_id = 'readers'").fetchall() == [(0,)]
