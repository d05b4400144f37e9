"""What is left of transactions in the log: SQL, pipelines, retention and compaction see what is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.gateway.store import StoreSettings
from headgate.gateway.store.compaction import compact
from headgate.gateway.store.retention import retain
from headgate.gateway.store.statements import sql
from headgate.sources.kafka.offsets import Partition, Range
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.log.tables import LogTables
from headgate.wire.kafka import read_records, split_batches
from headgate.wire.kafka.markers import is_commit
from headgate.wire.kafka.messages.storage import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, new_database, running
from tests.gateway.transactional import RawProducer, fetch_committed, latest
from tests.stock import both_servers

# The housekeepers come when they are called.
SETTINGS = StoreSettings(housekeeping_interval_s=1000, compaction_interval_s=1000)
TIMEOUT_S = 30.0


@pytest.fixture(params=both_servers, scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """On the embedded server and on Debian's."""
    if request.param == "embedded":
        server = request.getfixturevalue("endpoints").postgres_url
    else:
        server = request.getfixturevalue("stock_url")
    with new_database(server) as made:
        yield made


@pytest.fixture(scope="module")
def gateway(url: str) -> Iterator[GatewayThread]:
    with running(url, store_settings=SETTINGS) as started:
        yield started


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[RawClient]:
    with RawClient(gateway.port) as opened:
        yield opened


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"x-{uuid4().hex[:10]}"


def create(gateway: GatewayThread, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(TIMEOUT_S)


def column(connection: psycopg.Connection, query: str, *values: object) -> list[object]:
    return [row[0] for row in connection.execute(query.encode(), values)]


def every_way(connection: psycopg.Connection, url: str, topic: str) -> list[list[object]]:
    """The values of partition 0, in all the ways in which SQL and pipelines read."""
    tables = LogTables(LogSourceOptions.from_spark({"url": url, "subscribe": topic}))
    bounds = tables.bounds()[Partition(topic, 0)]
    batches = list(tables.read(Range(Partition(topic, 0), *bounds)))
    read = pa.Table.from_batches(batches).column("value").to_pylist() if batches else []
    return [
        column(connection, "select value from kafka.messages where topic = %s and partition = 0 order by 1", topic),
        column(connection, "select value from kafka.read(%s, 0, 0, 100) order by 1", topic),
        column(connection, "select value from kafka.newest(%s, 100) where partition = 0 order by 1", topic),
        column(connection, "select value from kafka.since(%s, '2001-01-01') where partition = 0 order by 1", topic),
        column(connection, "select value from kafka.after(%s, -1) where partition = 0 order by 1", topic),
        sorted(read),
    ]


def test_every_reader_sees_what_is_committed(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, url: str, topic: str, name: str
) -> None:
    create(gateway, topic)
    writer, other = RawProducer(client, name), RawProducer(client, f"{name}-2")
    expected: list[bytes] = []
    for turn, commits in enumerate([True, False, True, False, False, True]):
        writer.add(topic)
        assert writer.write(topic, b"%d-a" % turn, b"%d-b" % turn) == 0
        assert every_way(connection, url, topic) == [expected] * 6, "an open transaction is seen"
        assert writer.end(commit=commits) == 0
        expected += [b"%d-a" % turn, b"%d-b" % turn] if commits else []
        assert every_way(connection, url, topic) == [expected] * 6
    # Two at once, one of each kind, through one another.
    writer.add(topic)
    other.add(topic)
    assert writer.write(topic, b"7-a") == other.write(topic, b"8-a") == writer.write(topic, b"7-b") == 0
    assert other.end(commit=False) == 0
    assert every_way(connection, url, topic) == [expected] * 6
    assert writer.end(commit=True) == 0
    expected += [b"7-a", b"7-b"]
    assert every_way(connection, url, topic) == [expected] * 6
    ((state, open_since),) = connection.execute(
        "select state, started_at from kafka.transactions where transactional_id = %s", [name]
    )
    assert (state, open_since) == ("CompleteCommit", None)


def test_polling_by_global_offsets_misses_nothing(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, topic: str, name: str
) -> None:
    """What is written later to another partition waits for the transaction, or whoever polls would have passed it."""
    create(gateway, topic, 2)
    early, late = RawProducer(client, name), RawProducer(client, f"{name}-2")
    early.add(topic, 0)
    assert early.write(topic, b"early") == 0
    late.add(topic, 1)
    assert late.write(topic, b"late", partition=1) == late.end(commit=True) == 0
    assert column(connection, "select value from kafka.after(%s, -1)", topic) == []
    assert column(connection, "select value from kafka.newest(%s)", topic) == [b"late"]
    assert early.end(commit=True) == 0
    assert column(connection, "select value from kafka.after(%s, -1)", topic) == [b"early", b"late"]


def test_rights_of_readers_go_on(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, topic: str, name: str
) -> None:
    """With what docs/gateway.md grants, and nothing else."""
    create(gateway, topic)
    writer = RawProducer(client, name)
    writer.add(topic)
    assert writer.write(topic, b"a") == writer.end(commit=True) == 0
    role = f"r{uuid4().hex[:8]}"
    connection.execute(f"create role {role}".encode())
    try:
        connection.execute(f"grant usage on schema kafka to {role}".encode())
        connection.execute(f"grant select on kafka.messages to {role}".encode())
        connection.execute(
            "grant select on kafka.topics, kafka.partitions, kafka.spans, kafka.batches, kafka.aborted"
            f" to {role}".encode()
        )
        connection.execute(f"set role {role}".encode())
        for query in ("kafka.messages where topic = %s", "kafka.read(%s, 0, 0, 9)", "kafka.newest(%s)"):
            assert column(connection, f"select value from {query}", topic) == [b"a"]
        for table in ("transactional_ids", "pending_offsets"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"select * from kafka.{table}".encode())
    finally:
        connection.execute("reset role")
        connection.execute(f"drop owned by {role}; drop role {role}".encode())


def test_deleted_data_holds_up_nobody(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, topic: str, name: str
) -> None:
    """Records of an open transaction are deleted, and then its topic: it ends all the same."""
    create(gateway, topic)
    create(gateway, f"{topic}-2")
    writer = RawProducer(client, name)
    writer.add(topic)
    writer.add(f"{topic}-2")
    assert writer.write(topic, b"a", b"b") == writer.write(f"{topic}-2", b"c") == 0
    partition = DeleteRecordsTopic(name=topic, partitions=(DeleteRecordsPartition(0, 2),))
    client.ask(DELETE_RECORDS, 1, DeleteRecordsRequest(topics=(partition,), timeout_ms=10_000))
    assert fetch_committed(client, topic, 2)[0].last_stable_offset == 2
    assert latest(client, topic, isolation=1) == 2
    assert writer.write(topic, b"d") == 0
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.delete_topics([f"{topic}-2"])[f"{topic}-2"].result(TIMEOUT_S)
    assert writer.end(commit=True) == 0
    answer, shown = fetch_committed(client, topic, 2)
    assert (answer.last_stable_offset, shown) == (4, [b"d"])
    assert column(connection, "select value from kafka.messages where topic = %s", topic) == [b"d"]
    rows = column(connection, "select cardinality(open_offsets) from kafka.states where part_id = 0")
    assert rows == [0]


def test_what_is_gone_is_forgotten(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, topic: str, name: str
) -> None:
    create(gateway, topic)
    writer = RawProducer(client, name)
    for value in (b"a", b"b"):
        writer.add(topic)
        assert writer.write(topic, value) == writer.end(commit=False) == 0
    count = (
        "select count(*) from kafka.aborted join kafka.parts using (part_id)"
        " join kafka.topics as t on t.id = topic_id where name = %s"
    )
    assert column(connection, count, topic) == [2]
    partition = DeleteRecordsTopic(name=topic, partitions=(DeleteRecordsPartition(0, 2),))
    client.ask(DELETE_RECORDS, 1, DeleteRecordsRequest(topics=(partition,), timeout_ms=10_000))
    connection.execute(sql("forget_aborted"))
    assert column(connection, count, topic) == [1]
    connection.execute(
        "update kafka.transactional_ids set changed_at = now() - interval '8 days' where transactional_id = %s", [name]
    )
    connection.execute(sql("forget_transactional_ids"))
    assert writer.add(topic) == 49, "the id is unknown"


def _compacted(url: str, rounds: int = 2) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            for _ in range(rounds):
                await compact(connection, 1000)

    asyncio.run(run())


def _everything(client: RawClient, topic: str) -> list[tuple[bool, int, object]]:
    """Whether it is a transaction's, the offset, and the value or, of a marker, whether it commits."""
    answer = client.fetch(topic).responses[0].partitions[0]
    return [
        (header.is_transactional, record.offset, is_commit(record) if header.is_control else record.value)
        for header, data in split_batches(answer.records)
        for record in read_records(data)
    ]


def test_compaction_keeps_what_is_committed(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, url: str, topic: str, name: str
) -> None:
    """An aborted record wins over nobody, and markers stay as long as there are records of theirs."""
    create(gateway, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0", delete_retention_ms="0")
    writer, other = RawProducer(client, name), RawProducer(client, f"{name}-2")
    writer.add(topic)
    assert writer.write(topic, b"old", key=b"k") == writer.write(topic, b"kept", key=b"other") == 0
    assert writer.end(commit=True) == 0  # 0, 1, 2
    writer.add(topic)
    assert writer.write(topic, b"new", key=b"k") == writer.end(commit=True) == 0  # 3, 4
    writer.add(topic)
    assert writer.write(topic, b"aborted", key=b"k") == writer.end(commit=False) == 0  # 5, 6
    other.add(topic)
    assert other.write(topic, b"open", key=b"k") == 0  # 7
    writer.add(topic)
    assert writer.write(topic, b"behind", key=b"k") == writer.end(commit=True) == 0  # 8, 9
    _compacted(url)
    found = _everything(client, topic)
    assert found == [
        (True, 1, b"kept"), (True, 2, True), (True, 3, b"new"), (True, 4, True),
        (True, 7, b"open"), (True, 8, b"behind"), (True, 9, True),
    ]  # fmt: skip
    assert fetch_committed(client, topic)[1] == [b"kept", b"new"]
    assert other.end(commit=True) == 0  # 10
    _compacted(url, 3)
    assert fetch_committed(client, topic)[1] == [b"kept", b"behind"]
    assert column(connection, "select value from kafka.messages where topic = %s order by 1", topic) == [
        b"behind",
        b"kept",
    ]
    markers = [offset for _, offset, value in _everything(client, topic) if isinstance(value, bool)]
    assert 2 in markers
    assert 9 in markers
    assert 4 not in markers
    count = "select count(*) from kafka.aborted as a join kafka.parts using (part_id) where topic_id ="
    query = f"{count} (select id from kafka.topics where name = %s)"
    assert column(connection, query, topic) == [0], "of an abort whose marker is gone"


def test_cost_does_not_grow_under_a_snapshot(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, url: str, topic: str, name: str
) -> None:
    """A backup keeps every version of every row: an end, and what readers stop at, cost the same after many."""
    create(gateway, topic)
    writer = RawProducer(client, name)

    def pages(statement: str) -> int:
        row = connection.execute(f"explain (analyze, buffers, format json) {statement}".encode()).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def costs() -> list[int]:
        one = f"select * from kafka.transaction_of('{name}')"
        (part,) = column(
            connection,
            "select part_id from kafka.parts join kafka.topics as t on t.id = topic_id where name = %s",
            topic,
        )
        end = f"select last_stable_offset from kafka.partitions where part_id = {part}"
        stop = "select * from kafka.open_transactions()"
        # The least of some: a plan that is made anew, because something was analyzed just then, reads the catalog.
        return [min(pages(each) for _ in range(5)) for each in (one, end, stop)]

    with psycopg.connect(url) as backup:
        backup.execute("set transaction isolation level repeatable read")
        backup.execute("select count(*) from kafka.topics")
        for _ in range(20):
            assert writer.add(topic) == writer.write(topic, b"v") == writer.end(commit=True) == 0
        costs()
        before = costs()
        for _ in range(400):
            assert writer.add(topic) == writer.write(topic, b"v") == writer.end(commit=False) == 0
        connection.execute("vacuum analyze kafka.states, kafka.transactional_ids, kafka.aborted")
        costs()
        after = costs()
        assert all(late <= early * 2 + 3 for early, late in zip(before, after, strict=True)), (before, after)
        backup.rollback()


def test_retention_takes_what_is_old_whatever_its_transaction(
    gateway: GatewayThread, client: RawClient, connection: psycopg.Connection, url: str, topic: str, name: str
) -> None:
    """Committed, aborted and open; nothing is held up afterwards."""
    create(gateway, topic, retention_ms="1")
    writer, other = RawProducer(client, name), RawProducer(client, f"{name}-2")
    for commits in (True, False):
        writer.add(topic)
        assert writer.write(topic, b"a") == writer.end(commit=commits) == 0
    other.add(topic)
    assert other.write(topic, b"open") == 0

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as own:
            await retain(own, SETTINGS, lambda *_: None)

    asyncio.run(run())
    bounds = "select array[p.log_start_offset, p.last_stable_offset, p.next_offset] from kafka.partitions as p"
    where = " join kafka.topics as t on t.id = p.topic_id where name = %s"
    assert column(connection, bounds + where, topic) == [[5, 5, 5]]
    assert fetch_committed(client, topic, 5)[0].last_stable_offset == 5
    assert other.end(commit=True) == 0
    writer.add(topic)
    assert writer.write(topic, b"late") == 0
    assert writer.end(commit=False) == 0
    answer, shown = fetch_committed(client, topic, 5)
    assert (answer.last_stable_offset, shown) == (8, [])
