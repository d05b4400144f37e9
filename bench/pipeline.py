"""random -> Spark -> NATS, beside the same publisher without Spark and Spark without a destination."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.harness import Bench
from bench.trees import cpu_seconds, rss_bytes, spent_seconds
from headgate.destinations.base import Destination
from headgate.destinations.discard import DiscardDestination
from headgate.destinations.nats import JetStream, NatsDestination, NatsOptions, Publisher
from headgate.embedded import Stack, find_java
from headgate.pipeline.session import SparkOptions, open_session
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.generator import generate
from headgate.sources.random.source import RandomSource

PAYLOAD_BYTES = 200
BATCH_ROWS = 100_000
SMALL_BATCH_ROWS = 100
IDLE_S = 10.0


def measure(bench: Bench) -> None:
    rows = min(bench.rows, 200_000) if bench.quick else bench.rows
    if not bench.quick:
        _start_times(bench)
    with Stack(bench.directory / "stack") as endpoints, _spark(bench.directory) as spark:
        assert endpoints.nats_url is not None
        options = NatsOptions(url=endpoints.nats_url, stream="BENCH", subjects=("bench.>",))
        runs = _Runs(bench.directory, spark)
        nats = NatsDestination("nats", options)
        runs.throughput("warm", nats, 2 * BATCH_ROWS)
        _purge(options)
        alone = _publisher_alone(options, rows)
        _purge(options)
        through = runs.throughput("nats", nats, rows)
        no_op = runs.throughput("discard", DiscardDestination("discard"), rows)
        _purge(options)
        batches = 120 if bench.quick else 300
        small = runs.batch_seconds("small", nats, SMALL_BATCH_ROWS, batches)
        bench.figure("spark_to_nats_rows_per_second", through)
        bench.figure("publisher_alone_rows_per_second", alone)
        bench.figure("spark_to_nothing_rows_per_second", no_op)
        bench.figure("batch_100_rows_p50_ms", small * 1000)
        if not bench.quick:
            _idle(bench, runs, nats)
    bench.check("of the publisher alone", through / alone, 0.6, "higher")
    bench.check("batch of 100 rows, p50 ms", small * 1000, 150, "lower")
    if "demo_warm_start_seconds" in bench.figures:
        bench.check("demo, warm start to first event, s", bench.figures["demo_warm_start_seconds"], 25, "lower")


@contextmanager
def _spark(directory: Path) -> Iterator[SparkSession]:
    session = open_session(SparkOptions(java_home=find_java(directory / "java").home, log_dir=directory / "logs"))
    yield session
    session.stop()


def _purge(options: NatsOptions) -> None:
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
        jetstream.purge_stream(options.stream)


def _publisher_alone(options: NatsOptions, rows: int) -> float:
    """The same messages from one process, generated and formatted before the clock starts."""
    batches = []
    for start in range(0, rows, 8192):
        count = min(8192, rows - start)
        batch = generate(start, start + count, seed=7, customers=1000, payload_bytes=PAYLOAD_BYTES)
        ids = [f"alone-{position}" for position in batch.column("_position").to_pylist()]
        batches.append((pa.array(["bench.order"] * count), pa.array(ids), batch.column("note").cast(pa.binary())))
    with Publisher(options) as publisher:
        began = time.perf_counter()
        for topics, ids_column, payloads in batches:
            publisher.publish(topics, ids_column, payloads)
        receipt = publisher.flush().raise_for_failures()
        seconds = time.perf_counter() - began
    assert receipt.acked == rows
    return rows / seconds


class _Runs:
    """Pipelines on one warm Spark session."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self._directory = directory
        self._spark = spark

    def supervisor(self, name: str, destination: Destination, rows: int, batch_rows: int) -> Supervisor:
        source = RandomSource(
            name,
            {
                "rowsPerSecond": "0",
                "numRows": str(rows),
                "maxOffsetsPerTrigger": str(batch_rows),
                "payloadBytes": str(PAYLOAD_BYTES),
            },
            name,
        )
        spec = PipelineSpec(
            name=name,
            source=source,
            destinations=(destination,),
            topic="bench.{kind}",
            state_path=self._directory / name / "state.json",
            checkpoint=(self._directory / name / "checkpoint").as_uri(),
            payload_format="raw",
            payload_column="note",
        )
        return Supervisor(spec, self._spark)

    def _progress(self, name: str, destination: Destination, rows: int, batch_rows: int) -> list[dict[str, Any]]:
        """What Spark reports of each batch, once all rows are delivered."""
        supervisor = self.supervisor(name, destination, rows, batch_rows)
        supervisor.start()
        assert supervisor.reporter.wait_for_rows(rows, timeout_s=600)
        # Spark posts a batch's report a moment after the batch, and keeps the last hundred, idle ones included.
        expected = min(-(-rows // batch_rows), 80)
        deadline = time.monotonic() + 30
        batches: list[dict[str, Any]] = []
        while len(batches) < expected and time.monotonic() < deadline:
            batches = [report for report in supervisor.progress() if report["numInputRows"]]
            time.sleep(0.05)
        supervisor.stop()
        assert supervisor.join(60)
        return batches

    def throughput(self, name: str, destination: Destination, rows: int) -> float:
        """Rows per second of the running query: its batches with all of Spark's own work, without its start."""
        batches = self._progress(name, destination, rows, min(BATCH_ROWS, rows))
        seconds = sum(_seconds(batch) for batch in batches)
        return sum(int(batch["numInputRows"]) for batch in batches) / seconds

    def batch_seconds(self, name: str, destination: Destination, batch_rows: int, batches: int) -> float:
        """The median of the later half: Java has compiled what it wants to by then."""
        progress = self._progress(name, destination, batch_rows * batches, batch_rows)
        return statistics.median(_seconds(batch) for batch in progress[len(progress) // 2 :])


def _seconds(batch: dict[str, Any]) -> float:
    return float(batch["durationMs"]["triggerExecution"]) / 1000


def _idle(bench: Bench, runs: _Runs, destination: Destination) -> None:
    """A pipeline with nothing to do: servers, Spark and all."""
    supervisor = runs.supervisor("idle", destination, 1000, 1000)
    supervisor.start()
    assert supervisor.reporter.wait_for_rows(1000, timeout_s=60)
    before = cpu_seconds(os.getpid())
    time.sleep(IDLE_S)
    bench.figure("idle_cpu_percent", spent_seconds(before, cpu_seconds(os.getpid())) / IDLE_S * 100)
    memory = rss_bytes(os.getpid())
    bench.figure("rss_total_mb", sum(memory.values()) / 1e6)
    for name, size in sorted(memory.items()):
        bench.figure(f"rss_{name}_mb", size / 1e6)
    supervisor.stop()
    assert supervisor.join(60)


def _start_times(bench: Bench) -> None:
    """`headgate demo` to its first event: with an empty data directory, and once more."""
    command = [sys.executable, "-m", "headgate", "demo", "--seconds", "1", "--json"]
    for name in ("cold", "warm"):
        done = subprocess.run(
            [*command, "--data-dir", str(bench.directory / "demo")], capture_output=True, text=True, check=True
        )
        bench.figure(f"demo_{name}_start_seconds", json.loads(done.stdout)["first_event_seconds"])
