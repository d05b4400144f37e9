"""Copies one table: a consistent point, a Spark job whose tasks read and send, and the message that ends it.

The rows never enter the JVM: a row of the Spark source says only which range to read, and the task that gets it reads
and sends in one Python process. Each task returns what it sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headgate.destinations.nats import JetStream, NatsOptions, Publisher, borrow_publisher
from headgate.destinations.nats.fragments import split_large
from headgate.model import DeliveryError, record
from headgate.model.places import init_prefix
from headgate.runtime.failpoints import failpoint
from headgate.snapshots.chunks import Chunk, ChunkMaker, add_checksums, payload_column
from headgate.snapshots.jobs import Job, table_token
from headgate.snapshots.requests import Mentions, progress_subject
from headgate.sources.postgres_snapshot.keyset import Key, current_lsn, primary_key, read_by_key, settle
from headgate.sources.postgres_snapshot.options import RowFormat, SnapshotOptions
from headgate.sources.postgres_snapshot.plan import SnapshotTable, plan_table, quoted_name
from headgate.sources.postgres_snapshot.points import Method, Point, take_point
from headgate.sources.postgres_snapshot.reading import ROW, located_ranges, read_range
from headgate.wire.compress.frames import Compressor, header_lines
from headgate.wire.envelope import encode_fields, schema_version
from headgate.wire.pgoutput import format_lsn

__all__ = ["CopyOptions", "copy_table", "discard_chunks", "fail_message"]

_RESULT = "_result"
_RESULT_ARROW = pa.schema([(_RESULT, pa.string())])
_NUMBERS_PER_RANGE = 1_000_000
_HEADROOM_BYTES = 8192  # of a message, for its headers and the chunk's own fields: what fits need not be cut
_BATCH_BYTES = 8 << 20
_WINDOW_BYTES = 64 << 20  # messages of a megabyte: with fewer on their way the server waits for us between two batches
Batches: TypeAlias = Iterator[pa.RecordBatch]
_METHODS: dict[str, Method] = {"export": "export", "filter": "filter"}


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Where from, where to, and how. Goes to the executors."""

    url: str = field(repr=False)
    publications: tuple[str, ...]
    nats: NatsOptions  # of the stream of snapshots
    cdc_stream: str
    format: RowFormat
    zstd: bool = False
    parallelism: int = 2
    point_timeout_s: float = 60.0

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    @property
    def prefix(self) -> str:
        """What subjects of snapshots begin with."""
        return init_prefix(self.nats.stream)


@dataclass(frozen=True, slots=True)
class _Task:
    """What every task of the Spark job knows."""

    options: CopyOptions
    source: SnapshotOptions
    fields: dict[str, Any]
    subject: str
    progress: str
    chunk_rows: int


def copy_table(spark: SparkSession, job: Job, options: CopyOptions) -> None:
    """Make the snapshot of a job."""
    with JetStream.open(options.nats) as jetstream:
        jetstream.ensure_stream(options.nats)
        info = jetstream.stream_info(options.cdc_stream)
        # Noted before the point is taken: whatever the stream holds by now, the point contains.
        cdc_sequence = info.last_sequence if info else 0
        stream_created = info.created if info else ""
    failpoint("snapshot.begun")
    if job.method == "watermark":
        point, results = None, _copy_by_key(spark, job, options)
    else:
        point, results = _copy_at_point(spark, job, options, _METHODS[job.method])
    failpoint("snapshot.sent")
    job.rows, job.chunks, job.bytes = (sum(each[name] for each in results) for name in ("rows", "chunks", "bytes"))
    end = _end_message(job, options, point, cdc_sequence, add_checksums([each["checksum"] for each in results]))
    _publish_meta(job, options, end | {"stream_created": stream_created})
    failpoint("snapshot.ended")


def _copy_at_point(
    spark: SparkSession, job: Job, options: CopyOptions, method: Method
) -> tuple[Point, list[dict[str, int]]]:
    """Ranges of the table side by side, all in one snapshot of the database."""
    with take_point(options.url, method, job.schema, job.table, options.point_timeout_s) as point:
        table = plan_table(options.url, job.schema, job.table, options.publications)
        job.lsn, job.schema_version = format_lsn(point.lsn), schema_version(table.relation)
        job.relation_id = table.relation.relation_id
        source = _source(job, options) | {"shape": "located", "snapshotName": point.snapshot_name}
        frame = spark.read.format("pgsnapshot").options(**source).load().coalesce(options.parallelism)
        return point, _results(spark, job, frame, partial(_send_ranges, task=_task(job, options)))


def _copy_by_key(spark: SparkSession, job: Job, options: CopyOptions) -> list[dict[str, int]]:
    """In the order of the key, one short transaction after the other; exact once the stream has come to `lsn`."""
    settle(options.url, options.point_timeout_s)
    table = plan_table(options.url, job.schema, job.table, options.publications)
    key = primary_key(options.url, table)
    job.schema_version, job.relation_id = schema_version(table.relation), table.relation.relation_id
    send = partial(_send_by_key, task=_task(job, options), table=table, key=key)
    results = _results(spark, job, spark.range(0, 1, 1, 1), send)
    now = plan_table(options.url, job.schema, job.table, options.publications)
    if (schema_version(now.relation), now.relation.relation_id) != (job.schema_version, job.relation_id):
        raise DeliveryError("the table was altered or made anew while it was read", remedy="it is read again")
    job.lsn = format_lsn(current_lsn(options.url))
    return results


def _source(job: Job, options: CopyOptions) -> dict[str, str]:
    return {
        "url": options.url,
        "table": quoted_name(job.schema, job.table),
        "publication": ",".join(options.publications),
        "numPartitions": str(options.parallelism),
        "format": options.format,
        "batchRows": str(job.chunk_rows),
        "batchBytes": str(_BATCH_BYTES),
    }


def _task(job: Job, options: CopyOptions) -> _Task:
    fields = {
        "table": job.table,
        "schema": job.schema,
        "operation": "snapshot",
        "snapshot_id": job.id,
        "lsn": job.lsn,
        "schema_version": job.schema_version,
    }
    subject = f"{options.prefix}.snap.{table_token(job.schema, job.table)}.{job.id}"
    source = SnapshotOptions.from_spark(_source(job, options))
    return _Task(options, source, fields, subject, progress_subject(job.id), job.chunk_rows)


def _results(
    spark: SparkSession, job: Job, frame: DataFrame, send: Callable[[Batches], Batches]
) -> list[dict[str, int]]:
    spark.sparkContext.setJobGroup(job.id, f"snapshot of {job.schema}.{job.table}", interruptOnCancel=True)
    sent = frame.mapInArrow(send, f"{_RESULT} string").toArrow()
    return [json.loads(text) for text in sent.column(_RESULT).to_pylist()]


def _send_ranges(batches: Batches, task: _Task) -> Batches:
    for range_ in located_ranges(batches):
        yield _send_all(read_range(task.source, range_), task, range_.part.number)


def _send_by_key(batches: Batches, task: _Task, table: SnapshotTable, key: Key) -> Batches:
    for batch in batches:
        for _ in range(batch.num_rows):
            yield _send_all(read_by_key(task.source, table, key), task, 0)


def _send_all(rows: Batches, task: _Task, range_number: int) -> pa.RecordBatch:
    """Read and send; the one row that reports it."""
    nats = replace(task.options.nats, window_bytes=_WINDOW_BYTES)
    with borrow_publisher(nats) as publisher, Mentions(nats) as mentions:
        sender = _Sender(publisher, mentions, task, range_number)
        maker = ChunkMaker(
            task.fields,
            first_number=range_number * _NUMBERS_PER_RANGE,
            max_rows=task.chunk_rows,
            max_bytes=publisher.max_payload - _HEADROOM_BYTES,
            is_json=task.options.is_json,
        )
        for batch in rows:
            sender.send(list(maker.chunks(batch.column(ROW))))
        result = sender.finish()
    return pa.RecordBatch.from_pylist([{_RESULT: json.dumps(result)}], schema=_RESULT_ARROW)


class _Sender:
    """Publishes chunks, and counts them."""

    def __init__(self, publisher: Publisher, mentions: Mentions, task: _Task, range_number: int) -> None:
        self._publisher = publisher
        self._mentions = mentions
        self._task = task
        self._range = range_number
        self._compressor = Compressor() if task.options.zstd else None
        self._result = {"rows": 0, "chunks": 0, "bytes": 0, "checksum": 0}

    def send(self, chunks: list[Chunk]) -> None:
        topics = [f"{self._task.subject}.{chunk.number}" for chunk in chunks]
        ids = [f"{self._task.fields['snapshot_id']}-{chunk.number:012d}" for chunk in chunks]
        columns = [pa.array(topics), pa.array(ids), payload_column(chunks)]
        batch = pa.RecordBatch.from_arrays(columns, names=list(record.DELIVERY_COLUMNS))
        parts, headers = split_large(batch, self._publisher.max_payload)
        topic, message_id, payload = (parts.column(name) for name in record.DELIVERY_COLUMNS)
        if self._compressor:
            before, payload = payload, self._compressor.compress_column(payload)
            headers = _joined(headers, header_lines(before, payload, None))
        self._publisher.publish(topic, message_id, payload, headers=headers)
        self._count(chunks)
        failpoint("snapshot.sending")

    def _count(self, chunks: list[Chunk]) -> None:
        self._result["rows"] += sum(chunk.rows for chunk in chunks)
        self._result["chunks"] += len(chunks)
        self._result["bytes"] += sum(chunk.size for chunk in chunks)
        self._result["checksum"] += sum(chunk.checksum for chunk in chunks)
        told = {name: self._result[name] for name in ("rows", "chunks", "bytes")}
        self._mentions.say(self._task.progress, json.dumps(told | {"range": self._range}).encode())

    def finish(self) -> dict[str, int]:
        self._publisher.flush().raise_for_failures()
        return self._result


def _joined(first: pa.Array | None, second: pa.Array) -> pa.Array:
    if first is None:
        return second
    return pc.binary_join_element_wise(first, second, b"")


def _end_message(
    job: Job, options: CopyOptions, point: Point | None, cdc_sequence: int, checksum: str
) -> dict[str, Any]:
    fields = {
        "table": job.table,
        "schema": job.schema,
        "snapshot_id": job.id,
        "operation": "snapshot_end",
        "method": job.method,
        "lsn": job.lsn,
        "cdc_stream": options.cdc_stream,
        "cdc_sequence": cdc_sequence,
        "row_count": job.rows,
        "batch_count": job.chunks,
        "checksum": checksum,
        "schema_version": job.schema_version,
        "relation_id": job.relation_id,
        "timestamp": int(time.time()),
        "replaces": job.replaces,
    }
    if point is not None and point.method == "filter":
        fields |= {"xmin": point.xmin, "xmax": point.xmax, "xip": list(point.xip)}
    return fields


def fail_message(job: Job, options: CopyOptions) -> None:
    """Tell whoever waits that nothing more will come of this one."""
    fields = {
        "table": job.table,
        "schema": job.schema,
        "snapshot_id": job.id,
        "operation": "snapshot_failed",
        "cdc_stream": options.cdc_stream,
        "error": job.error,
        "timestamp": int(time.time()),
        "replaces": job.replaces,
    }
    _publish_meta(job, options, fields)


def _publish_meta(job: Job, options: CopyOptions, fields: dict[str, Any]) -> None:
    subject = f"{options.prefix}.meta.{table_token(job.schema, job.table)}"
    with JetStream.open(options.nats) as jetstream:
        jetstream.publish(subject, encode_fields(fields, is_json=options.is_json), (("Nats-Msg-Id", f"{job.id}-end"),))


def discard_chunks(job: Job, options: CopyOptions, job_id: str) -> None:
    """Chunks without an end are of no use to anybody. `job_id` may be one that the job replaces."""
    with JetStream.open(options.nats) as jetstream:
        subject = f"{options.prefix}.snap.{table_token(job.schema, job.table)}.{job_id}.>"
        if jetstream.stream_info(options.nats.stream) is not None:
            jetstream.purge_stream(options.nats.stream, subject)
