"""Changes of real tables, routed by columns and by table through one slot."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import NatsDestination
from headgate.embedded import Endpoints
from headgate.model import DeliveryError, Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.base import Offset
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Start = Callable[..., Supervisor]
Admin = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def name() -> str:
    return f"route_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def admin(endpoints: Endpoints, name: str) -> Iterator[Admin]:
    """Tables `events` and `users` in a schema of their own, and a publication of both."""
    assert endpoints.postgres_url is not None
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"SET search_path TO {name}")
        connection.execute("CREATE TABLE events (id bigint PRIMARY KEY, kind text, tenant text, body jsonb, big text)")
        connection.execute("ALTER TABLE events ALTER big SET STORAGE EXTERNAL")
        connection.execute("CREATE TABLE users (id bigint PRIMARY KEY, name text)")
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLES IN SCHEMA {name}")
        yield connection
        connection.execute(f"DROP PUBLICATION {name}")
        connection.execute(f"DROP SCHEMA {name} CASCADE")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND NOT active",
            (name,),
        )


@pytest.fixture
def start(
    endpoints: Endpoints, admin: Admin, spark: SparkSession, tmp_path: Path, name: str
) -> Iterator[Callable[..., Supervisor]]:
    started: list[Supervisor] = []

    def begin(*, destination: dict[str, Any] | None = None, before: Any = None, **pipeline: Any) -> Supervisor:
        config = Config.model_validate(
            {
                "project": {"name": name, "data_dir": tmp_path},
                "sources": {"changes": {"type": "postgres-cdc", "slot": name, "publication": name}},
                "destinations": {"out": destination or {"type": "memory"}},
                "pipelines": {"p": {"source": "changes", "destinations": ["out"], **pipeline}},
            }
        )
        spec = assemble(config, nats_url=endpoints.nats_url, postgres_url=endpoints.postgres_url)[0]
        if before is not None:
            before(spec)
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        started.append(supervisor)
        return supervisor

    yield begin
    for supervisor in started:
        supervisor.stop()
        assert supervisor.join(60)


def memory_of(supervisor: Supervisor) -> MemoryDestination:
    destination = supervisor.spec.destinations[0]
    assert isinstance(destination, MemoryDestination)
    return destination


BY_KIND = {"topic_column": "kind", "default_topic": "other"}


def inserts(supervisor: Supervisor) -> int:
    operations = [msgspec.msgpack.decode(m.payload)["operation"] for m in memory_of(supervisor).messages]
    return operations.count("INSERT")


def wait_for_slot(admin: Admin, name: str) -> None:
    """Changes before the slot is consistent are nobody's; until then it is listed without a position."""
    ready = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL"
    deadline = time.monotonic() + 60
    while not admin.execute(ready, (name,)).fetchone():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rows_are_routed_by_columns_tables_and_old_rows(start: Start, admin: Admin, name: str) -> None:
    supervisor = start(
        routing={**BY_KIND, "by_table": {f"{name}.users": {"stream": "identity", "topic": "users"}}},
        destination={"type": "memory", "max_rows": 1000},
    )
    wait_for_slot(admin, name)
    admin.execute("INSERT INTO events SELECT n, 'kind' || n %% 3, 't', '{}', NULL FROM generate_series(1, 30) n", ())
    admin.execute("INSERT INTO users VALUES (1, 'a')")
    admin.execute("UPDATE events SET kind = 'moved' WHERE id = 1")
    admin.execute("DELETE FROM events WHERE id = 2")
    memory = memory_of(supervisor)
    assert memory.wait_for(33, timeout_s=60)
    messages = [m for m in memory.messages if msgspec.msgpack.decode(m.payload)["operation"] != "SCHEMA"]
    counts = Counter(message.topic for message in messages)
    assert counts == {"kind0": 10, "kind1": 10, "kind2": 10, "users": 1, "moved": 1, "other": 1}
    # The delete carries its key alone, so it had to go to the default, and is counted.
    assert supervisor.report.routing["absent_total"] == 1
    admin.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    admin.execute("UPDATE events SET big = repeat('x', 100000) WHERE id = 3")
    admin.execute("UPDATE events SET id = 1003 WHERE id = 3")
    admin.execute("DELETE FROM events WHERE id = 4")
    assert memory.wait_for(len(memory.messages) + 3, timeout_s=60)
    last = [(m.topic, msgspec.msgpack.decode(m.payload)["operation"]) for m in memory.messages][-3:]
    assert last == [("kind0", "UPDATE"), ("kind0", "UPDATE"), ("kind1", "DELETE")]
    assert supervisor.report.routing["absent_total"] == 1


def test_a_new_column_blocks_nobody(start: Start, admin: Admin, name: str) -> None:
    """The event that describes the table has no row to route by; a truncate has none either, but is data."""
    strict = {"on_missing_destination": "error"}
    supervisor = start(routing={**BY_KIND, "admission": strict}, failure_threshold=2)
    wait_for_slot(admin, name)
    admin.execute("INSERT INTO events VALUES (1, 'a', 't', '{}', NULL)")
    admin.execute("ALTER TABLE events ADD more int")
    admin.execute("INSERT INTO events VALUES (2, 'a', 't', '{}', NULL, 5)")
    assert supervisor.reporter.wait_for_rows(2, timeout_s=60)
    assert supervisor.report.errors_total == 0
    admin.execute("TRUNCATE events")
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    error = supervisor.report.error
    assert error is not None
    assert "have no destination" in error["message"]


def test_an_untouched_large_value_routes_by_the_old_row_or_is_counted(start: Start, admin: Admin, name: str) -> None:
    supervisor = start(routing={"topic_column": "tenant", "default_topic": "other"})
    wait_for_slot(admin, name)
    large = "x" * 200
    # A row above two kilobytes is shrunk to the target, value by value.
    admin.execute("ALTER TABLE events ALTER tenant SET STORAGE EXTERNAL")
    admin.execute("ALTER TABLE events SET (toast_tuple_target = 128)")
    admin.execute("INSERT INTO events VALUES (1, 'a', %s, '{}', repeat('y', 3000))", (large,))
    admin.execute("UPDATE events SET kind = 'b'")
    memory = memory_of(supervisor)
    assert memory.wait_for(2, timeout_s=60)
    rows = [m.topic for m in memory.messages if msgspec.msgpack.decode(m.payload)["operation"] != "SCHEMA"]
    assert rows == [large, "other"]
    assert supervisor.report.routing["absent_total"] == 1
    admin.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    admin.execute("UPDATE events SET kind = 'c'")
    assert memory.wait_for(len(memory.messages) + 1, timeout_s=60)
    assert memory.messages[-1].topic == large


def test_a_route_inside_jsonb_to_several_streams(start: Start, admin: Admin, name: str, endpoints: Endpoints) -> None:
    route = {
        "type": "route",
        "field": "body.type",
        "stream": f"{name}",
        "default_topic": "unknown",
        "mapping": {"order.created": "orders", "order.paid": ["orders", {"stream": f"{name}-money", "topic": "paid"}]},
    }
    supervisor = start(
        transforms=[route],
        destination={"type": "nats", "stream": f"{name}-own", "subjects": [f"own-{name}.>"]},
    )
    wait_for_slot(admin, name)
    for number, kind in enumerate(("order.created", "order.paid", "nobody.knows")):
        admin.execute("INSERT INTO events VALUES (%s, 'k', 't', %s, NULL)", (number, f'{{"type": "{kind}"}}'))
    assert supervisor.reporter.wait_for_rows(3, timeout_s=60)
    events = [
        (m.subject, msgspec.msgpack.decode(m.data)["operation"])
        for stream, count in ((name, 3), (f"{name}-money", 1))
        for m in read_stream(endpoints.nats_url, stream, count)
    ]
    inserts = [subject for subject, operation in events if operation == "INSERT"]
    assert inserts == [f"{name}.orders", f"{name}.orders", f"{name}.unknown", f"{name}-money.paid"]
    destination = supervisor.spec.destinations[0]
    assert isinstance(destination, NatsDestination)
    assert destination.exclusive


def test_tables_and_filtered_rows(start: Start, admin: Admin, name: str) -> None:
    """A route by the table's name; and with a filter before it, where the rows go through Spark's own plan."""
    by_table = {"type": "route", "field": "_table", "match": "all", "mapping": {"users": "people"}}
    by_kind = {"type": "route", "field": "kind", "mapping": {"a": "as"}, "default_topic": "rest"}
    supervisor = start(transforms=[{"type": "filter", "where": "_op <> 'update'"}, by_table, by_kind])
    wait_for_slot(admin, name)
    admin.execute("INSERT INTO users VALUES (1, 'u')")
    admin.execute("INSERT INTO events VALUES (1, 'a', 't', '{}', NULL), (2, 'b', 't', '{}', NULL)")
    admin.execute("UPDATE events SET kind = 'a' WHERE id = 2")
    admin.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    admin.execute("DELETE FROM events WHERE id = 1")
    memory = memory_of(supervisor)
    assert memory.wait_for(4, timeout_s=60)
    found = [
        (m.topic, event["operation"])
        for m in memory.messages
        if (event := msgspec.msgpack.decode(m.payload))["operation"] != "SCHEMA"
    ]
    assert found == [("people", "INSERT"), ("as", "INSERT"), ("rest", "INSERT"), ("as", "DELETE")]


def test_a_commit_that_fails_degrades_and_holds_the_slot(start: Start, admin: Admin, name: str) -> None:
    """`confirmed_flush_lsn` moves only on commit; the batch is not sent a second time when the commit is."""
    failing: list[bool] = [True]
    supervisors: list[Supervisor] = []

    def break_commit(spec: Any) -> None:
        commit = spec.source.commit

        def broken(end: Offset) -> None:
            if failing and supervisors and inserts(supervisors[0]):  # an earlier, empty batch may pass
                raise DeliveryError("the slot cannot be advanced", remedy="wait")
            commit(end)

        spec.source.commit = broken

    supervisors.append(start(routing=BY_KIND, failure_threshold=3, before=break_commit))
    supervisor = supervisors[0]
    wait_for_slot(admin, name)

    def position(of: str) -> Any:
        row = admin.execute(f"SELECT {of} FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone()
        assert row is not None
        return row[0]

    insert = "INSERT INTO events VALUES (1, 'a', 't', '{}', NULL) RETURNING pg_current_wal_insert_lsn()"
    before = admin.execute(insert).fetchall()[0][0]  # others write to that server, too
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    report = supervisor.report
    assert report.error is not None
    assert report.error["message"] == "the slot cannot be advanced"
    assert report.failures_in_row >= 3
    assert position(f"confirmed_flush_lsn <= '{before}'::pg_lsn")
    failing.clear()
    assert supervisor.reporter.wait_for(Status.RUNNING, timeout_s=60)
    assert inserts(supervisor) == 1
    admin.execute("INSERT INTO events VALUES (2, 'a', 't', '{}', NULL)")
    assert supervisor.reporter.wait_for_rows(2, timeout_s=60)
    states = [change.status for change in supervisor.report.history]
    assert states[:2] == [Status.RUNNING, Status.DEGRADED]
    assert states[-1] is Status.RUNNING
