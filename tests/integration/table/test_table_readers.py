"""Tables as others read them, and the process killed at every step of a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headgate.destinations.base import Lane
from headgate.destinations.table import TableDestination, open_table
from headgate.destinations.table.names import NO_STREAM
from headgate.model import Position

TOPICS = [
    "orders",
    "42",
    "ünïcode 🎉",
    "a/../b=c%2f",
    "with 'quotes' and \"more\"",
    "tab\tand\nline",
    "..",
    "{x}[y]#?*",
]
STREAMS = [None, "shop", "007"]
FILES = "stream=*/topic=*/*.parquet"

Row = tuple[str | None, str, str, bytes, bytes | None]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TableDestination:
    destination = TableDestination("t", str(tmp_path_factory.mktemp("tables") / "t"))
    destination.ensure()
    for batch_id, stream in enumerate(STREAMS):
        with destination.open(Lane(stream, batch_id=batch_id)) as sender:
            sender.send(rows(batch_id))
            reports = sender.finish().reports
        destination.complete(batch_id, reports)
    return destination


def rows(batch_id: int) -> pa.RecordBatch:
    numbers = range(batch_id * 100, batch_id * 100 + len(TOPICS))
    return pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array(TOPICS),
            "_message_id": pa.array([f"db-{Position(number)}" for number in numbers]),
            "_payload": pa.array([b"\x00\xff%d" % number for number in numbers], pa.binary()),
            "_partition_key": pa.array([b"k" if number % 2 else None for number in numbers], pa.binary()),
        }
    )


def expected() -> set[Row]:
    return {
        (stream, row["_topic"], row["_message_id"], row["_payload"], row["_partition_key"])
        for batch_id, stream in enumerate(STREAMS)
        for row in rows(batch_id).to_pylist()
    }


def as_rows(found: pa.Table) -> set[Row]:
    names = ("stream", "topic", "message_id", "payload", "partition_key")
    listed = [tuple(row[name] for name in names) for row in found.to_pylist()]
    assert len(listed) == len(set(listed))
    return set(listed)


def test_headgate_reads_it(table: TableDestination) -> None:
    assert as_rows(open_table(table.path).to_table()) == expected()
    assert open_table(table.path).count_rows(filter=ds.field("topic") == "42") == len(STREAMS)


def test_pyarrow_reads_it(table: TableDestination) -> None:
    names = pa.schema([("stream", pa.string()), ("topic", pa.string())])
    hive = ds.HivePartitioning(names, null_fallback=NO_STREAM)
    assert as_rows(ds.dataset(table.path, partitioning=hive).to_table()) == expected()


def test_duckdb_reads_it(table: TableDestination) -> None:
    query = f"from read_parquet('{table.path}/{FILES}', hive_partitioning = true, hive_types_autocast = false)"
    found = duckdb.sql(query)
    assert found is not None
    assert as_rows(found.to_arrow_table()) == expected()


@pytest.mark.spark
def test_spark_reads_it(table: TableDestination, spark: SparkSession) -> None:
    schema = "message_id string, partition_key binary, payload binary, stream string, topic string"
    assert as_rows(spark.read.schema(schema).parquet(table.path).toArrow()) == expected()


def test_a_table_without_streams_is_read_by_everybody_as_it_is(tmp_path: Path) -> None:
    """A level with nothing but NULL has no type, at which plain pyarrow and pandas give up."""
    destination = TableDestination("t", str(tmp_path / "t"), has_streams=False)
    destination.ensure()
    with destination.open(Lane(batch_id=0)) as sender:
        sender.send(rows(0))
        destination.complete(0, sender.finish().reports)
    wanted = {(row["_topic"], row["_message_id"], row["_payload"]) for row in rows(0).to_pylist()}

    def seen(table: pa.Table) -> set[tuple[str, str, bytes]]:
        return {(str(row["topic"]), row["message_id"], row["payload"]) for row in table.to_pylist()}

    assert {path.name for path in (tmp_path / "t").iterdir() if not path.name.startswith("_")} >= {"topic=orders"}
    assert seen(pq.read_table(destination.path)) == wanted
    assert seen(pa.Table.from_pandas(pd.read_parquet(destination.path))) == wanted
    assert seen(open_table(destination.path).to_table()) == wanted
    assert open_table(destination.path).to_table().column("stream").null_count == len(wanted)
    files = f"{destination.path}/topic=*/*.parquet"
    found = duckdb.sql(f"from read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)")
    assert found is not None
    assert seen(found.to_arrow_table()) == wanted
    with destination.open(Lane(batch_id=1)) as sender:  # of another time, when every row had the level
        sender.send(rows(1))
        reports = [report | {"has_streams": True} for report in sender.finish().reports]
        destination.complete(1, reports)
    assert open_table(destination.path).count_rows() == 2 * len(wanted)


@pytest.mark.spark
def test_spark_reads_a_table_without_streams(tmp_path: Path, spark: SparkSession) -> None:
    destination = TableDestination("t", str(tmp_path / "t"), has_streams=False)
    destination.ensure()
    with destination.open(Lane(batch_id=0)) as sender:
        sender.send(rows(0))
        destination.complete(0, sender.finish().reports)
    found = spark.read.parquet(destination.path).toArrow()
    assert {str(topic) for topic in found.column("topic").to_pylist()} == set(TOPICS)


_SCRIPT = """
import sys
from headgate.destinations.base import Lane
from headgate.destinations.table import TableDestination
from tests.integration.table.test_table_readers import rows

destination = TableDestination("t", sys.argv[1])
with destination.open(Lane("s", batch_id=1)) as sender:
    sender.send(rows(1))
    reports = sender.finish().reports
destination.complete(1, reports)
"""


@pytest.mark.parametrize(
    "places",
    [
        ["table.intended"],
        ["table.moving"],
        ["table.moved", "table.intended"],
        ["table.completed"],
    ],
)
def test_a_process_killed_at_any_step(tmp_path: Path, places: list[str]) -> None:
    destination = TableDestination("t", str(tmp_path / "t"))
    deliver(destination, 0)
    script = [sys.executable, "-c", _SCRIPT, destination.path]
    for place in places:
        died = subprocess.run(script, env={**os.environ, "HEADGATE_FAILPOINT": place}, check=False, timeout=60)
        assert died.returncode == -signal.SIGKILL
        seen = open_table(destination.path).count_rows()
        assert seen == len(TOPICS) * (2 if place == "table.completed" else 1)
    deliver(destination, 1)
    ids = open_table(destination.path).to_table().column("message_id").to_pylist()
    assert sorted(ids) == sorted(rows(0).column("_message_id").to_pylist() + rows(1).column("_message_id").to_pylist())
    # Readers that only look at the directories see each row once, too.
    assert len(list(Path(destination.path).glob(FILES))) == 2 * len(TOPICS)
    assert sorted(path.name for path in Path(destination.path, "_batches").iterdir()) == [
        "0000000000.json",
        "0000000001.json",
    ]
    assert list(Path(destination.path, "_staging").iterdir()) == []


def deliver(destination: TableDestination, batch_id: int) -> None:
    with destination.open(Lane("s", batch_id=batch_id)) as sender:
        sender.send(rows(batch_id))
        reports = sender.finish().reports
    destination.complete(batch_id, reports)
