"""The Spark source `pgsnapshot`, from a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from headgate.model import ConfigError, HeadgateError, StateError
from headgate.sources.postgres_snapshot.reading import located_ranges, read_range
from tests.integration.pg_snapshot.source import Source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

RESERVED = 5  # the columns of a change that are not the table's


def load(spark: SparkSession, source: Source, table: str, **options: Any) -> DataFrame:
    reader = spark.read.format("pgsnapshot").option("url", source.url).option("table", f"{source.name}.{table}")
    return reader.option("publication", ",".join(source.publications)).options(**options).load()


def changes(spark: SparkSession, source: Source, table: str, directory: Path) -> tuple[DataFrame, list[Row]]:
    """The typed changes of a table up to now."""
    reader = spark.readStream.format("pgcdc").option("url", source.url).option("slot", source.name)
    reader = reader.option("publication", source.name).option("spool", str(directory / "spool"))
    stream = reader.option("table", f"{source.name}.{table}").load()
    found: list[Row] = []
    writer = stream.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    source.sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active and slot_name = %s",
               source.name)  # fmt: skip
    return stream, found


def failure(frame: DataFrame) -> HeadgateError:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    error = HeadgateError.from_text(str(caught.value))
    assert error is not None
    return error


def test_typed_rows_equal_those_of_the_stream(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.sql("create type mood as enum ('sad', 'ok'); create type pair as (a int, b text)")
    source.sql("""
        create table orders (
            id bigint primary key, flag bool, small smallint, f4 real, f8 float8, exact numeric(10,2), loose numeric,
            word text, pad char(4), raw bytea, day date, at timestamptz, local timestamp, doc jsonb, key uuid,
            span interval, clock timetz, feeling mood, both_ pair, tags text[], numbers int[], days date[],
            "odd `name.x" int, half bigint generated always as (id / 2) stored)
    """)
    source.sql(r"""
        insert into orders select g, true, g, 1.5, 1e300, -9.99, 'NaN', E'l1\nl2 \t\u00e9"\\', 'ab', '\x00ff',
            '0001-01-01', '2024-02-29 23:59:59.999999+02', '9999-12-31 23:59:59.999999', '{"b": [1, null], "a": "x"}',
            '00000000-0000-0000-0000-00000000000a', '1 mon -1 day', '12:00:00+02', 'ok', row(1, 'a b')::pair,
            '{a,NULL,"NULL",""}'::text[], '{}'::int[], '{2020-01-01,NULL}'::date[], 7 from generate_series(1, 50) g
    """)
    source.sql("insert into orders (id) values (-1)")
    stream, streamed = changes(spark, source, "orders", tmp_path)
    typed = load(spark, source, "orders")
    assert typed.schema.simpleString() == stream.drop(*stream.columns[-RESERVED:]).schema.simpleString()
    rows = typed.collect()
    assert len(rows) == 51
    assert sorted(map(repr, rows)) == sorted(
        repr(Row(**dict(list(row.asDict().items())[:-RESERVED]))) for row in streamed
    )
    assert load(spark, source, "orders", textColumns="exact").schema["exact"].dataType.simpleString() == "string"


def test_encoded_rows_in_many_partitions_of_one_snapshot(spark: SparkSession, source: Source) -> None:
    source.sql("create table wide (id int primary key, t text)")
    source.sql("alter table wide alter t set storage plain")
    source.sql("insert into wide select g, repeat('x', 7900) from generate_series(1, 2500) g")
    with source.point("wide") as point:
        source.sql("delete from wide")
        rows = load(
            spark, source, "wide", shape="rows", numPartitions="2", format="json", snapshotName=point.snapshot_name
        )
        assert rows.rdd.getNumPartitions() == 2
        assert sorted(bytes(row["_row"]) for row in rows.collect()) == sorted(source.rows_at(point, "wide", "json"))


def test_ranges_are_read_by_whoever_sends_them(spark: SparkSession, source: Source) -> None:
    source.sql("create table t (id int); insert into t select generate_series(1, 1000)")
    with source.point("t") as point:
        source.sql("insert into t values (-1)")
        options = source.options("t")
        ranges = load(spark, source, "t", shape="located", snapshotName=point.snapshot_name)

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for range_ in located_ranges(batches):
                rows = sum(batch.num_rows for batch in read_range(options, range_))
                yield pa.RecordBatch.from_pydict({"number": [range_.part.number], "rows": [rows]})

        assert ranges.columns == ["_range"]
        assert ranges.mapInArrow(count, "number bigint, rows bigint").collect() == [Row(number=0, rows=1000)]


def held(source: Source) -> int:
    query = "select count(*)::int from pg_locks where relation = %s::regclass and mode = 'AccessShareLock'"
    ((count,),) = source.sql(query, f"{source.name}.t")
    return int(count)


def await_release(source: Source) -> None:
    for _ in range(200):
        if not held(source):
            return
        source.sql("select pg_sleep(0.05)")
    pytest.fail("the point is still held")


@pytest.mark.parametrize("method", ["filter", "export"])
def test_its_own_point_is_let_go_when_all_is_read(spark: SparkSession, source: Source, method: str) -> None:
    source.sql("create table t (id int); insert into t values (1)")
    assert load(spark, source, "t", method=method).collect() == [Row(id=1)]
    await_release(source)


def test_its_own_point_is_let_go_when_nobody_reads(spark: SparkSession, source: Source) -> None:
    source.sql("create table t (id int); insert into t values (1)")
    load(spark, source, "t", shape="located", holdSeconds="4").collect()
    assert held(source) == 1
    await_release(source)


def test_what_is_wrong_is_told(spark: SparkSession, source: Source) -> None:
    source.sql("create table t (id int); create view v as select 1 as id")
    error = failure(load(spark, source, "v", shape="rows"))
    assert isinstance(error, ConfigError)
    assert "is a view" in error.message
    assert isinstance(failure(load(spark, source, "t", snapshotName="00000000-00000001-1")), StateError)
    with pytest.raises(PySparkException, match="did you mean numPartitions"):
        load(spark, source, "t", numPartition="3")
