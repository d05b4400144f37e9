"""Topics of the log as Spark reads them, without Spark: the same rows as a Kafka client gets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from headgate.commitlog.append import append
from headgate.commitlog.install import install
from headgate.commitlog.prepare import Rules, prepare
from headgate.commitlog.topics import ensure_topic
from headgate.destinations.log import LogDestination
from headgate.embedded import Endpoints
from headgate.model import ConnectError, StateError, UsageError
from headgate.sources.kafka.offsets import Bounds, Partition, Range
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.log.tables import LogTables
from headgate.wire.kafka import Codec, Record, encode_batch
from tests.contract.destinations.test_contract import rows
from tests.gateway.servers import new_database

NOW = 1_790_000_000_000


@pytest.fixture(scope="module")
def url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made:
        with psycopg.connect(made, autocommit=True) as connection:
            install(connection)
            fill(connection)
        yield made


def fill(connection: psycopg.Connection) -> None:
    """`orders` has 4 batches of 25 in partition 1, one for each of some codecs."""
    topic = ensure_topic(connection, "orders", 3, {"retention.ms": "-1"})
    for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        records = [
            Record(
                n, NOW + n, b"k%d" % n if n % 2 else None, None if n == 3 else b"v%d" % n, (("h", None), ("h", b"x"))
            )
            for n in range(25)
        ]
        (batch,) = prepare(encode_batch(records, codec=codec), Rules())
        append(connection, [(topic.parts[1], batch)])
    ensure_topic(connection, "order.items", 1)


def tables(url: str, **options: str) -> LogTables:
    return LogTables(LogSourceOptions.from_spark({"url": url} | (options or {"subscribe": "orders"})))


def test_bounds_by_name_and_by_pattern(url: str) -> None:
    assert tables(url).bounds() == {Partition("orders", n): Bounds(0, 100 if n == 1 else 0) for n in range(3)}
    found = tables(url, subscribePattern=r"order\.?.*s").bounds()
    assert {partition.topic for partition in found} == {"orders", "order.items"}


@pytest.mark.parametrize(("start", "end"), [(0, 100), (3, 4), (24, 26), (30, 90), (99, 100)])
def test_a_range_is_read_exactly(url: str, start: int, end: int) -> None:
    reader = pickle.loads(pickle.dumps(tables(url)))
    found = pa.Table.from_batches(reader.read(Range(Partition("orders", 1), start, end)))
    assert found["offset"].to_pylist() == list(range(start, end))
    numbers = [offset % 25 for offset in range(start, end)]
    assert found["value"].to_pylist() == [None if n == 3 else b"v%d" % n for n in numbers]
    assert found["key"].to_pylist() == [b"k%d" % n if n % 2 else None for n in numbers]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [(NOW + n) * 1000 for n in numbers]
    assert found["headers"].to_pylist()[0] == [{"key": "h", "value": None}, {"key": "h", "value": b"x"}]
    assert found["_position"].to_pylist()[0] == f"orders-1-{start:019d}"


def test_messages_that_are_gone(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        topic = ensure_topic(connection, "short", 1, {"retention.ms": "-1"})
        (batch,) = prepare(encode_batch([Record(n, NOW, None, b"%d" % n) for n in range(10)]), Rules())
        append(connection, [(topic.parts[0], batch)])
        connection.execute("select kafka.delete_records(%s, 6)", [topic.parts[0]])
    wanted = Range(Partition("short", 0), 2, 10)
    with pytest.raises(StateError, match="messages 2 to 5 of short/0 are gone"):
        list(tables(url, subscribe="short").read(wanted))
    found = pa.Table.from_batches(tables(url, subscribe="short", failOnDataLoss="false").read(wanted))
    assert found["offset"].to_pylist() == [6, 7, 8, 9]


def test_what_is_wrong_is_said(url: str, endpoints: Endpoints) -> None:
    with pytest.raises(StateError, match="there is no topic absent"):
        tables(url, subscribe="absent").bounds()
    with pytest.raises(UsageError, match="regular expression"):
        tables(url, subscribePattern="[").bounds()
    with pytest.raises(ConnectError):
        tables("postgres://nobody@127.0.0.1:1/x", subscribe="t").bounds()
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as empty, pytest.raises(StateError, match="kafka"):
        tables(empty, subscribe="t").bounds()


def test_a_writer_thought_dead_changes_nothing(url: str) -> None:
    """Two senders of one pipeline at once: the rows of the slower one are there already."""
    destination = LogDestination("d", url, partitions=2, exclusive=True)
    with destination.open() as slow:
        slow.send(rows("raced", 0, 50))
        with destination.open() as quick:
            quick.send(rows("raced", 0, 80))
            assert quick.finish().duplicates == 0
        assert slow.finish().duplicates == 50
    with psycopg.connect(url) as connection:
        found = connection.execute("select value from kafka.messages where topic = 'raced'").fetchall()
    assert sorted(int(value) for (value,) in found) == list(range(80))
