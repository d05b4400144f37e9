"""Schemas and snapshots of one pipeline: takes requests, makes one snapshot after the other, remembers them."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headgate.destinations.nats import JetStream
from headgate.model import ConfigError, DataError, HeadgateError, Retry
from headgate.model.places import DEFAULT_PREFIX
from headgate.pipeline.failures import from_spark
from headgate.postgres import connect
from headgate.snapshots.copying import CopyOptions, copy_table, discard_chunks, fail_message
from headgate.snapshots.jobs import Job, Journal, new_id, table_token
from headgate.snapshots.requests import RequestListener
from headgate.snapshots.schemas import SchemaPublisher

__all__ = ["SnapshotService", "SnapshotServiceOptions", "check_options"]

_log = logging.getLogger(__name__)

_KEEP_ENDED = 100
_TRIES = 5
_BACKOFF_S = 1.0
_CHUNK_ROWS = 10_000
_MOST_CHUNK_ROWS = 1_000_000
_SCHEMAS_S = 2.0
METHODS = ("export", "filter", "watermark")


@dataclass(frozen=True, slots=True)
class SnapshotServiceOptions:
    """All that the configuration says of it."""

    copy: CopyOptions
    bucket: str
    subject: str  # a template: where events go
    spool: Path
    journal: Path
    chunk_rows: int = _CHUNK_ROWS
    method: str = "export"


class SnapshotService:
    """Owns a thread that makes snapshots, one that listens for requests, and the bucket of schemas."""

    def __init__(self, options: SnapshotServiceOptions, spark: SparkSession) -> None:
        self._options = options
        self._spark = spark.newSession()
        self._journal = Journal(options.journal)
        self._jobs: dict[str, Job] = {}
        self._progress: dict[int, dict[str, int]] = {}  # of the running job, by range
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._has_stream = False
        copy = options.copy
        self.schemas = SchemaPublisher(
            options.spool, copy.nats, options.bucket, subject=options.subject, is_json=copy.is_json
        )
        self._listener = RequestListener(copy.nats, self)
        self._threads = [
            threading.Thread(target=self._make_snapshots, name="snapshots", daemon=True),
            threading.Thread(target=self._keep_schemas, name="schemas", daemon=True),
        ]

    def start(self) -> None:
        """Begin; snapshots that a crash interrupted are made anew."""
        for old in self._journal.read():
            self._add(_successor(old))
        for thread in self._threads:
            thread.start()
        self._listener.start()

    def stop(self) -> None:
        """End. A running snapshot is given up now and made anew at the next start."""
        self._stop.set()
        self._listener.stop()
        with self._changed:
            running = [job.id for job in self._jobs.values() if job.state == "running"]
            self._changed.notify_all()
        for job_id in running:
            self._spark.sparkContext.cancelJobGroup(job_id)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)

    # Asking --------------------------------------------------------------------------------------------------

    def request(self, schema: str, table: str, method: str = "", chunk_rows: int = 0) -> tuple[Job, bool]:
        """The job that makes a snapshot of the table, and whether somebody asked for it before."""
        method = method or self._options.method
        check_options(method, chunk_rows)
        if (schema, table) not in self.schemas.tables:
            publications = ", ".join(self._options.copy.publications)
            known = ", ".join(sorted(".".join(name) for name in list(self.schemas.tables))) or "none yet"
            raise ConfigError(
                f"the publication {publications} has no table {schema}.{table}",
                remedy=f"published tables: {known}",
            )
        self._ensure_stream()
        with self._changed:
            for job in self._jobs.values():
                if (job.schema, job.table) == (schema, table) and not job.ended:
                    return job, True
            chunk_rows = chunk_rows or self._options.chunk_rows
            job = Job(new_id(), schema, table, method, chunk_rows, requested_at=time.time())
            self._add(job)
            return job, False

    def _ensure_stream(self) -> None:
        """Make the stream before its name is told: who hears it may look there at once."""
        if not self._has_stream:
            with JetStream.open(self._options.copy.nats) as jetstream:
                jetstream.ensure_stream(self._options.copy.nats)
            self._has_stream = True

    def serves(self, cdc_stream: str | None) -> bool:
        """Whether a request is for this bridge. One that names no stream looks for its snapshot under `init`."""
        copy = self._options.copy
        return copy.prefix == DEFAULT_PREFIX if cdc_stream is None else copy.cdc_stream == cdc_stream

    @property
    def knows_tables(self) -> bool:
        """Whether the reader has told which tables there are."""
        return bool(self.schemas.tables)

    def table_of(self, tokens: tuple[str, ...]) -> tuple[str, str] | None:
        """The table that a request's subject names, if it is ours."""
        name = ".".join(tokens)
        for schema, table in list(self.schemas.tables):  # which another thread changes
            if name in (table_token(schema, table), f"{schema}.{table}"):
                return schema, table
        return None

    def answer(self, job: Job, *, shared: bool) -> dict[str, Any]:
        """What somebody who asked is told."""
        token = table_token(job.schema, job.table)
        return {
            "accepted": True,
            "snapshot_id": job.id,
            "schema": job.schema,
            "table": job.table,
            "method": job.method,
            "shared": shared,
            "stream": self._options.copy.nats.stream,
            "cdc_stream": self._options.copy.cdc_stream,
            "subject": f"{self._options.copy.prefix}.snap.{token}.{job.id}",
            "meta_subject": f"{self._options.copy.prefix}.meta.{token}",
        }

    def jobs(self) -> list[Job]:
        """All that are remembered, newest first."""
        with self._changed:
            return sorted(self._jobs.values(), key=lambda job: job.id, reverse=True)

    def job(self, job_id: str) -> Job | None:
        with self._changed:
            return self._jobs.get(job_id)

    def cancel(self, job_id: str) -> Job | None:
        """End a job that has not ended; its chunks go away."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None or job.ended:
                return job
            was_running = job.state == "running"
            job.state, job.finished_at = "cancelled", time.time()
            self._save()
        if was_running:
            self._spark.sparkContext.cancelJobGroup(job_id)
        else:
            self._tell_failure(job)
        return job

    def progress(self, job_id: str, told: dict[str, int]) -> None:
        """What a task has sent so far, of one range."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None or job.state != "running":
                return
            self._progress[told.get("range", 0)] = told
            totals = self._progress.values()
            job.rows = sum(each.get("rows", 0) for each in totals)
            job.chunks = sum(each.get("chunks", 0) for each in totals)
            job.bytes = sum(each.get("bytes", 0) for each in totals)

    # Making --------------------------------------------------------------------------------------------------

    def _add(self, job: Job) -> None:
        with self._changed:
            self._journal.write([*self._jobs.values(), job])  # first: who is told of it may rely on it
            self._jobs[job.id] = job
            ended = [each.id for each in self._jobs.values() if each.ended]
            for old in sorted(ended)[:-_KEEP_ENDED]:
                del self._jobs[old]
            self._changed.notify_all()

    def _save(self) -> None:
        self._journal.write(list(self._jobs.values()))

    def _make_snapshots(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._make(job)
            except Exception as error:  # this thread must not end: nobody else would make snapshots
                _log.exception("a snapshot was given up", extra={"snapshot": job.id})
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Whatever the running job is called by now."""
        with self._changed:
            for job in self._jobs.values():
                if job.state == "running":
                    job.state, job.finished_at, job.error = "failed", time.time(), from_spark(error).as_dict()

    def _next(self) -> Job | None:
        with self._changed:
            while not self._stop.is_set():
                queued = [job for job in self._jobs.values() if job.state == "queued"]
                if queued:
                    job = min(queued, key=lambda each: each.id)
                    job.state, job.started_at = "running", time.time()
                    self._progress = {}
                    return job
                self._changed.wait()
        return None

    def _make(self, job: Job) -> None:
        """Until it is done, or cannot be: a server that is away comes back."""
        for old in job.replaces:
            self._discard(job, old)
        for attempt in range(_TRIES):
            error = self._try(job)
            if error is None or self._stop.is_set() or job.ended:
                break
            if error.retry is not Retry.BACKOFF or attempt + 1 == _TRIES:
                job.state, job.finished_at, job.error = "failed", time.time(), error.as_dict()
                break
            _log.warning("snapshot is tried again", extra={"snapshot": job.id, "error": error.as_dict()})
            self._discard(job)
            job = self._renew(job)
            self._stop.wait(_BACKOFF_S * 2**attempt)
        if job.state in ("failed", "cancelled"):
            self._discard(job)
            self._tell_failure(job)
        try:
            with self._changed:
                self._save()
        except HeadgateError as error:  # a crash before the next one would make it once more, and that is all
            _log.error("the end of a snapshot is not written down", extra={"error": error.as_dict()})
        _log.info("snapshot ended", extra={"snapshot": job.as_dict()})

    def _try(self, job: Job) -> HeadgateError | None:
        try:
            job.rows_expected = _estimate(self._options.copy.url, job.schema, job.table)
            copy_table(self._spark, job, self._options.copy)
        except Exception as error:  # whatever Spark throws ends up in the job, never in a dead thread
            return from_spark(error).at(f"snapshot of {job.schema}.{job.table}")
        with self._changed:
            if not job.ended:
                job.state, job.finished_at = "done", time.time()
        return None

    def _renew(self, job: Job) -> Job:
        """Begin a job anew under a new id: what the old one has sent may be half a chunk short of anything."""
        renewed = _successor(job)
        renewed.state, renewed.started_at = "running", time.time()
        with self._changed:
            del self._jobs[job.id]
            self._jobs[renewed.id] = renewed
            self._progress = {}
            self._save()
        return renewed

    def _discard(self, job: Job, job_id: str = "") -> None:
        try:
            discard_chunks(job, self._options.copy, job_id or job.id)
        except HeadgateError as error:
            _log.info("chunks of %s stay until they expire: %s", job_id or job.id, error)

    def _tell_failure(self, job: Job) -> None:
        if job.error is None:
            job.error = DataError("the snapshot was cancelled", remedy="ask for a new one").as_dict()
        try:
            fail_message(job, self._options.copy)
        except HeadgateError as error:
            _log.info("nobody is told that %s failed: %s", job.id, error)

    def _keep_schemas(self) -> None:
        """So that the bucket is right also while nothing happens; before a batch the pipeline asks for it itself."""
        while not self._stop.wait(_SCHEMAS_S):
            try:
                self.schemas.publish()
            except Exception as error:  # this thread must not end: an idle pipeline does not publish them itself
                level = logging.INFO if isinstance(error, HeadgateError) else logging.ERROR
                _log.log(level, "schemas are not published: %s", error)
                self._stop.wait(_BACKOFF_S)


def check_options(method: str, chunk_rows: int) -> None:
    """Refuse what nobody can make; 0 rows stand for the configured number."""
    if method not in METHODS:
        raise DataError(f"there is no method {method!r}", remedy=f"one of: {', '.join(METHODS)}")
    if type(chunk_rows) is not int or not 0 <= chunk_rows <= _MOST_CHUNK_ROWS:
        raise DataError(f"chunk_rows is {chunk_rows!r}", remedy=f"from 1 to {_MOST_CHUNK_ROWS}")


def _successor(job: Job) -> Job:
    return Job(
        new_id(),
        job.schema,
        job.table,
        job.method,
        job.chunk_rows,
        requested_at=job.requested_at,
        replaces=[*job.replaces, job.id],
    )


def _estimate(url: str, schema: str, table: str) -> int:
    """Rows, by PostgreSQL's statistics; those of a partitioned table are in its partitions."""
    query = """
        select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint as rows
        from pg_partition_tree(format('%%I.%%I', %s::text, %s::text)::regclass) p join pg_class c on c.oid = p.relid
        where p.isleaf
    """
    with connect(url) as connection:
        row = connection.execute(query, [schema, table]).fetchone()
    return int(row["rows"]) if row else 0
