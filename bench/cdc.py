"""PostgreSQL -> JetStream end to end, beside its parts in the same run."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psycopg

from bench.cdc_backlog import measure_backlog
from bench.cdc_load import (
    STREAM,
    SUBJECTS,
    Admin,
    await_messages,
    fill,
    fill_singly,
    follower,
    make_table,
    update,
    writing,
)
from bench.cdc_parts import measure_parts
from bench.harness import Bench
from bench.trees import cpu_seconds, rss_bytes, spent_seconds
from headgate.config import Config
from headgate.control import Service
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints, Stack

_TABLES = ("ledger", "ledger2", "ledger3", "ledger4")
_LATENCY_RATE = 1000
_CONFIGURATION = f"""
project = {{{{ name = "bench", data_dir = "{{data_dir}}" }}}}
postgres = {{{{ url = "{{postgres}}" }}}}
nats = {{{{ url = "{{nats}}" }}}}
control = {{{{ port = 0 }}}}
sources.changes = {{{{ type = "postgres-cdc", slot = "bench", publication = "bench" }}}}
destinations.stream = {{{{ type = "nats", stream = "{STREAM}", subjects = ["{SUBJECTS[0]}"] }}}}
pipelines.bench = {{{{ source = "changes", destinations = ["stream"] }}}}
"""


def measure(bench: Bench) -> None:
    rows = min(bench.rows, 100_000) if bench.quick else min(bench.rows, 500_000)
    with Stack(bench.directory / "stack") as endpoints:
        assert endpoints.postgres_url is not None
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            for name in _TABLES:
                make_table(admin, name)
            admin.execute(f"create publication bench for table {', '.join(_TABLES)}".encode())
            measure_parts(bench, endpoints, admin, rows)
            measure_backlog(bench, endpoints, admin, rows)
            _whole(bench, endpoints, admin, rows)
    f = bench.figures
    limit = f["reader_and_publisher_together_rows_per_second"]
    floor = f["pg_recvlogical_rows_per_second"]
    bench.check("reader alone / pg_recvlogical", f["reader_alone_rows_per_second"] / floor, 0.9, "higher")
    bench.check("decode, us CPU per row", f["decode_us_per_row"], 1.5, "lower")
    for name in ("json", "debezium"):
        ratio = f[f"decode_{name}_us_per_row"] / f["decode_us_per_row"]
        bench.check(f"decode, {name} / MessagePack", ratio, 1.8, "lower")
    bench.check("end to end / slower of both together", f["end_to_end_rows_per_second"] / limit, 0.7, "higher")
    bench.check("commit to ack, p50 ms", f["latency_p50_ms"], 250, "lower")
    bench.check("commit to ack, p99 ms", f["latency_p99_ms"], 600, "lower")


def _configuration(bench: Bench, endpoints: Endpoints) -> str:
    return _CONFIGURATION.format(
        data_dir=bench.directory / "bridge", postgres=endpoints.postgres_url, nats=endpoints.nats_url
    )


@contextmanager
def _bridge(bench: Bench, endpoints: Endpoints) -> Iterator[None]:
    service = Service(Config.model_validate(tomllib.loads(_configuration(bench, endpoints))))
    service.start()
    try:
        yield
        assert service.first_error() is None
    finally:
        service.stop()


def _whole(bench: Bench, endpoints: Endpoints, admin: Admin, rows: int) -> None:
    options = NatsOptions(url=endpoints.nats_url or "", stream=STREAM, subjects=SUBJECTS)
    admin.execute("select pg_create_logical_replication_slot('bench', 'pgoutput')")
    with JetStream.open(options) as jetstream:
        with _bridge(bench, endpoints):
            _warm_up(bench, admin, jetstream)
            with follower(options.url, STREAM):
                _rates(bench, admin, jetstream, rows)
            _latency(bench, endpoints, jetstream)
            _one_big(bench, admin, jetstream, 100_000 if bench.quick else 500_000)
            bench.figure("rss_total_mb", sum(rss_bytes(os.getpid()).values()) / 1e6)
            before = cpu_seconds(os.getpid())
            time.sleep(5)
            bench.figure("idle_cpu_percent", spent_seconds(before, cpu_seconds(os.getpid())) / 5 * 100)
        _catch_up(bench, endpoints, admin, jetstream)


def _stored(jetstream: JetStream) -> int:
    info = jetstream.stream_info(STREAM)
    return info.last_sequence if info else 0


def _warm_up(bench: Bench, admin: Admin, jetstream: JetStream) -> None:
    """Java compiles what runs often."""
    for turn in range(1, (4 if bench.quick else 10) + 1):
        fill(admin, 20_000)
        await_messages(jetstream, turn * 20_000)


def _rates(bench: Bench, admin: Admin, jetstream: JetStream, rows: int) -> None:
    """With a consumer attached; the clock starts with the first row written and ends with the last one stored."""
    done = _stored(jetstream)
    began = time.perf_counter()
    with writing(admin, rows):
        done = await_messages(jetstream, done + rows)
        bench.figure("end_to_end_rows_per_second", rows / (time.perf_counter() - began))
    began = time.perf_counter()
    fill(admin, rows // 2, tables=_TABLES)
    done = await_messages(jetstream, done + rows // 2)
    bench.figure("four_tables_rows_per_second", rows // 2 / (time.perf_counter() - began))
    began = time.perf_counter()
    update(admin, rows // 5)
    done = await_messages(jetstream, done + rows // 5)
    bench.figure("updates_rows_per_second", rows // 5 / (time.perf_counter() - began))
    singles = 20_000 if bench.quick else 100_000
    began = time.perf_counter()
    fill_singly(admin, singles)
    bench.figure("one_row_transactions_written_per_second", singles / (time.perf_counter() - began))
    await_messages(jetstream, done + singles)
    bench.figure("one_row_transactions_rows_per_second", singles / (time.perf_counter() - began))


def _latency(bench: Bench, endpoints: Endpoints, jetstream: JetStream) -> None:
    """1,000 rows a second in transactions of 10; each transaction's commit against its last message's storage."""
    done = _stored(jetstream)
    seconds = 5 if bench.quick else 15
    commits: list[float] = []
    with psycopg.connect(endpoints.postgres_url or "", autocommit=True) as writer:
        start = time.perf_counter()
        for turn in range(seconds * _LATENCY_RATE // 10):
            time.sleep(max(0.0, start + turn * 10 / _LATENCY_RATE - time.perf_counter()))
            fill(writer, 10, per_transaction=10)
            commits.append(time.time())
    await_messages(jetstream, done + len(commits) * 10)
    delays = []
    for turn, committed in enumerate(commits[::5]):
        message = jetstream.message(STREAM, done + (turn * 5 + 1) * 10)
        assert message is not None
        delays.append((_epoch(message.time) - committed) * 1000)
    bench.figure("latency_p50_ms", statistics.median(delays))
    bench.figure("latency_p99_ms", statistics.quantiles(delays, n=100)[98])


def _epoch(text: str) -> float:
    """RFC 3339 with nanoseconds."""
    head, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(head + "+00:00").timestamp() + float(f"0.{fraction or 0}")


def _one_big(bench: Bench, admin: Admin, jetstream: JetStream, rows: int) -> None:
    done = _stored(jetstream)
    fill(admin, rows, per_transaction=rows)
    committed = time.perf_counter()
    await_messages(jetstream, done + 1)
    bench.figure("big_transaction_first_row_seconds", time.perf_counter() - committed)
    await_messages(jetstream, done + rows)
    bench.figure("big_transaction_last_row_seconds", time.perf_counter() - committed)


def _catch_up(bench: Bench, endpoints: Endpoints, admin: Admin, jetstream: JetStream) -> None:
    """A bridge of its own process dies of kill -9 under load; its successor starts, and delivers all of it."""
    config = bench.directory / "headgate.toml"
    config.write_text(_configuration(bench, endpoints), encoding="utf-8")
    command = [sys.executable, "-m", "headgate", "run", "--config", str(config)]
    rows = 20_000 if bench.quick else 100_000
    done = _stored(jetstream)
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    fill(admin, rows)
    await_messages(jetstream, done + 1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    fill(admin, rows)
    began = time.perf_counter()
    second = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    await_messages(jetstream, done + 2 * rows)
    bench.figure("catch_up_after_kill_seconds", time.perf_counter() - began)
    second.send_signal(signal.SIGTERM)
    second.wait(60)
    assert _stored(jetstream) == done + 2 * rows, "lost or repeated"
