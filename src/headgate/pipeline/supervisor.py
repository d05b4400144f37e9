"""A thread per pipeline that owns its status: starts the query, restarts it with capped backoff, stops it cleanly."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from headgate.model import HeadgateError, Retry, Status
from headgate.pipeline.failures import from_spark
from headgate.pipeline.query import PipelineQuery
from headgate.pipeline.report import Report, Reporter
from headgate.pipeline.spec import PipelineSpec

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

_BACKOFF_FIRST_S = 0.5
_BACKOFF_MOST_S = 30.0
_HEALTHY_AFTER_S = 60.0  # a run this long clears the backoff
_POLL_S = 0.25
_STOP_GRACE_S = 30.0


class Supervisor:
    """Runs one pipeline until it is told to stop, or until an error needs somebody to act."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        self.spec = spec
        self.reporter = Reporter(spec.name, spec.source.name, tuple(d.name for d in spec.destinations))
        self._spark = spark
        self._query: PipelineQuery | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pipeline-{spec.name}", daemon=True)

    @property
    def report(self) -> Report:
        destinations = {each.name: details for each in self.spec.destinations if (details := each.details())}
        source = self.spec.source.describe()
        return replace(self.reporter.report, source_details=source, destination_details=destinations)

    def progress(self) -> list[dict[str, Any]]:
        """Spark's own reports of the last batches."""
        return self._query.progress() if self._query else []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for a stop; `join` waits for it."""
        if self._thread.is_alive() and not self.report.status.ended:
            self.reporter.status(Status.STOPPING)
        self._stop.set()

    def join(self, timeout_s: float | None = None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while not self._stop.is_set():
            began = time.monotonic()
            error = self._run_once()
            if error is None:
                break
            self._tell(error)
            if self._stop.is_set() or error.retry is not Retry.BACKOFF:
                break
            if time.monotonic() - began > _HEALTHY_AFTER_S:
                backoff_s = _BACKOFF_FIRST_S
            self._stop.wait(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MOST_S)
            self.reporter.restarted()
        if self.report.status is not Status.ERROR:
            self.reporter.status(Status.STOPPED)

    def _run_once(self) -> HeadgateError | None:
        """One run of the query: None when it ended as it should, else what ended it."""
        self._query = query = PipelineQuery(self.spec, self._spark, self.reporter)
        try:
            query.start()
            self._watch(query)
        except Exception as error:  # whatever Spark throws ends up in the status, never in a crash
            return None if self._stop.is_set() else from_spark(error).at(self.spec.where)
        return None

    def _watch(self, query: PipelineQuery) -> None:
        """Wait for the query's end or the order to stop."""
        before = self.report
        if before.status is Status.STARTING:
            self.reporter.status(Status.RUNNING)
        while not self._stop.wait(_POLL_S):
            if query.ended():
                return
            if self.report.status is Status.DEGRADED and (
                self.report.batches_total > before.batches_total or query.idle
            ):
                self.reporter.status(Status.RUNNING)
        query.stop(_STOP_GRACE_S)

    def _tell(self, error: HeadgateError) -> None:
        status = Status.DEGRADED if error.retry is Retry.BACKOFF else Status.ERROR
        self.reporter.status(status, error)
        fields = {"pipeline": self.spec.name, "status": status.value, "error": error.as_dict()}
        _log.error("pipeline failed", extra=fields)
