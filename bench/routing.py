"""Rows that say where they go, beside the same rows with their topic in the plan; and a breaker that trips and closes.

The same rows, batches and server in every run: what differs is how each row's destination is found. `unrouted` has
the topic in the plan of the query; the others look it up, through so many routes, to so many destinations.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.harness import Bench
from bench.pipeline import BATCH_ROWS, PAYLOAD_BYTES, _purge, _seconds, _spark
from headgate.config.models import PipelineSection
from headgate.destinations.nats import JetStream, NatsDestination, NatsOptions
from headgate.embedded import Stack
from headgate.pipeline.routing.settings import routing_settings
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.source import RandomSource
from headgate.spool.dead_letters import DeadLetters

_REPEATS = 3
_COOL_DOWN_S = 8.0


def measure(bench: Bench) -> None:
    rows = min(bench.rows, 200_000) if bench.quick else bench.rows
    with Stack(bench.directory / "stack") as endpoints, _spark(bench.directory) as spark:
        assert endpoints.nats_url is not None
        options = NatsOptions(url=endpoints.nats_url, stream="BENCH", subjects=("bench.>",))
        runs = _Runs(bench.directory, spark, NatsDestination("nats", options))
        runs.throughput("warm", _by_topic(1), 2 * BATCH_ROWS, customers=1)
        cases: dict[str, tuple[dict[str, Any], int]] = {
            "unrouted": ({"topic": "bench.{customer}"}, 50),
            **{f"routes_{count}": (_by_route(count), count) for count in (1, 5, 500)},
            **{f"destinations_{count}": (_by_topic(count), count) for count in (1, 50, 200)},
            "streams_50": (_by_stream(), 50),
        }
        # In turns, so that a machine that gets slower or faster does so for all.
        found: dict[str, list[float]] = {name: [] for name in cases}
        for turn in range(1 if bench.quick else _REPEATS):
            for name, (section, customers) in cases.items():
                found[name].append(runs.throughput(f"{name}_{turn}", section, rows, customers=customers))
                _purge(options)
        best = {name: max(each) for name, each in found.items()}
        for name, rate in best.items():
            bench.figure(f"{name}_rows_per_second", rate)
        _breaker(bench, runs)
    bench.check("50 destinations, of the unrouted", best["destinations_50"] / best["unrouted"], 0.8, "higher")
    bench.check("500 routes, of 5 routes", best["routes_500"] / best["routes_5"], 0.9, "higher")
    bench.figure("destinations_200_of_unrouted", best["destinations_200"] / best["unrouted"])
    bench.figure("streams_50_of_unrouted", best["streams_50"] / best["unrouted"])


def _by_topic(count: int) -> dict[str, Any]:
    """A destination for each customer, named by a column."""
    columns = ["note", "concat('bench.', customer) as where_to"]
    return {
        "transforms": [{"type": "select", "columns": columns}],
        "routing": {
            "topic_column": "where_to",
            "default_topic": "bench.none",
            "admission": {"max_destinations": count + 1},
        },
    }


def _by_stream() -> dict[str, Any]:
    columns = ["note", "concat('bench-', customer) as where_to"]
    return {
        "transforms": [{"type": "select", "columns": columns}],
        "routing": {"stream_column": "where_to", "default_stream": "bench-none", "default_topic": "t"},
    }


def _by_route(count: int) -> dict[str, Any]:
    """So many values, to five topics at most."""
    mapping = {str(customer): f"bench.t{customer % 5}" for customer in range(count)}
    return {"transforms": [{"type": "route", "field": "customer", "mapping": mapping, "default_topic": "bench.none"}]}


class _Runs:
    """Routed and other pipelines on one warm Spark session."""

    def __init__(self, directory: Path, spark: SparkSession, destination: NatsDestination) -> None:
        self.destination = destination
        self._directory = directory
        self._spark = spark

    def supervisor(
        self, name: str, section: dict[str, Any], rows: int, *, customers: int, rows_per_second: int = 0
    ) -> Supervisor:
        parsed = PipelineSection.model_validate(
            {
                "source": "s",
                "destinations": ["nats"],
                "format": "raw",
                "payload_column": "note",
                "failure_threshold": 1000,
                **section,
            }
        )
        options = {
            "rowsPerSecond": rows_per_second,
            "numRows": rows,
            "maxOffsetsPerTrigger": BATCH_ROWS,
            "payloadBytes": PAYLOAD_BYTES,
            "customers": customers,
        }
        source = RandomSource(name, {key: str(value) for key, value in options.items()}, name)
        directory = self._directory / name
        spec = PipelineSpec(
            name=name,
            source=source,
            destinations=(self.destination,),
            topic=parsed.topic,
            transforms=parsed.transforms,
            payload_format="raw",
            payload_column="note",
            state_path=directory / "state.json",
            checkpoint=(directory / "checkpoint").as_uri(),
            routing=routing_settings(parsed, source.mode(), where=name) if parsed.routed else None,
            dead_letters=DeadLetters(directory / "dead_letters.sqlite"),
        )
        return Supervisor(spec, self._spark)

    def throughput(self, name: str, section: dict[str, Any], rows: int, *, customers: int) -> float:
        """Rows per second of the running query, without its first batch, which creates what is missing."""
        supervisor = self.supervisor(name, section, rows + BATCH_ROWS, customers=customers)
        supervisor.start()
        assert supervisor.reporter.wait_for_rows(rows + BATCH_ROWS, timeout_s=600), supervisor.report
        expected = -(-rows // BATCH_ROWS) + 1
        deadline = time.monotonic() + 30
        batches: list[dict[str, Any]] = []
        while len(batches) < expected and time.monotonic() < deadline:
            batches = [report for report in supervisor.progress() if report["numInputRows"]]
            time.sleep(0.05)
        supervisor.stop()
        assert supervisor.join(60)
        later = batches[1:]
        return sum(int(batch["numInputRows"]) for batch in later) / sum(_seconds(batch) for batch in later)


def _breaker(bench: Bench, runs: _Runs) -> None:
    """One stream of four is full: how long until it is left alone, what the others get meanwhile, until it is back."""
    options = runs.destination.options
    config = {"name": "trip-0", "subjects": ["trip-0.>"], "max_msgs": 1, "discard": "new", "storage": "memory"}
    section = {
        "transforms": [{"type": "select", "columns": ["note", "concat('trip-', customer) as s"]}],
        "routing": {
            "stream_column": "s",
            "default_stream": "trip-9",
            "default_topic": "t",
            "admission": {"on_admission_failure": "drop"},
            "circuit_breaker": {"failure_threshold": 5, "cool_down": _COOL_DOWN_S},
        },
    }
    with JetStream.open(options) as jetstream:
        jetstream.create_stream(config)
        supervisor = runs.supervisor("trip", section, 10**9, customers=4, rows_per_second=5000)
        routing = supervisor.routing
        assert routing is not None

        def full() -> dict[str, Any]:
            return next((each for each in routing.table.describe() if each["stream"] == "trip-0"), {})

        supervisor.start()
        _wait(lambda: bool(full().get("failures_total")))
        began = time.perf_counter()
        _wait(lambda: full()["circuit"] == "open")
        bench.figure("breaker_trip_seconds", time.perf_counter() - began)
        before, at = supervisor.reporter.report.rows_total, time.perf_counter()
        time.sleep(_COOL_DOWN_S * 0.75)
        flowed = (supervisor.reporter.report.rows_total - before) / (time.perf_counter() - at)
        bench.figure("rows_per_second_while_open_of_5000", flowed)
        jetstream.purge_stream("trip-0")
        jetstream.update_stream({**config, "max_msgs": -1})
        mended = time.perf_counter()
        _wait(lambda: full()["circuit"] == "closed")
        bench.figure("breaker_recover_seconds_after_mending", time.perf_counter() - mended)
        supervisor.stop()
        assert supervisor.join(60)


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.005)
