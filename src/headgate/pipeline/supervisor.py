"""A thread per pipeline that owns its status: starts the query, restarts it with capped backoff, stops it cleanly.

What must outlive a run of the query lives here: the destinations and their breakers, the batch that keeps failing, the
report.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from headgate.model import HeadgateError, Retry, Status
from headgate.pipeline.batches import FailingBatch
from headgate.pipeline.failures import from_spark
from headgate.pipeline.lag import LagWatch, delivered_end
from headgate.pipeline.query import PipelineQuery
from headgate.pipeline.report import Report, Reporter, with_source_error
from headgate.pipeline.routing.runtime import Routing
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.turns import StartTurns, Turn
from headgate.runtime.backoff import Backoff

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

_BACKOFF_FIRST_S = 0.5
_BACKOFF_MOST_S = 30.0
_HEALTHY_AFTER_S = 60.0  # a run this long clears the backoff
_POLL_S, _IDLE_POLL_S = 0.25, 1.0  # of a batch that follows its source: while it brings something, and else
_SETTLE_EVERY_S = 1.0


class Supervisor:
    """Runs one pipeline until it is told to stop, or until an error needs somebody to act."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, turns: StartTurns | None = None) -> None:
        self.spec = spec
        self._turns = turns or StartTurns()
        names = tuple(destination.name for destination in spec.destinations)
        self.reporter = Reporter(spec.name, spec.source.name, names, failure_threshold=spec.failure_threshold)
        self.routing: Routing | None = None
        if spec.routing is not None:
            assert spec.dead_letters is not None
            self.routing = Routing(
                spec.routing,
                spec.destinations,
                spec.dead_letters,
                pipeline=spec.name,
                directory=spec.state_path.parent,
                first_batch=spec.first_batch,
            )
        self.failing_batch = FailingBatch()
        self.spark = spark
        self._query: PipelineQuery | None = None
        self._stop = threading.Event()
        self._pause = threading.Event()
        self._again = threading.Event()  # end this run, and begin another
        self._command = threading.Event()  # something of the above was said
        self._lag = LagWatch(spec, spark, self.reporter.lag)
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"pipeline-{self.spec.name}", daemon=True)

    @property
    def report(self) -> Report:
        destinations = {each.name: details for each in self.spec.destinations if (details := each.details())}
        source = self.spec.source.describe()
        return replace(
            with_source_error(self.reporter.report, source.get("error")),
            failing_batch=self.failing_batch.batch_id,
            source_details=source,
            destination_details=destinations,
            routing=self.routing.describe() if self.routing else {},
        )

    def progress(self) -> list[dict[str, Any]]:
        """Spark's own reports of the last batches."""
        return self._query.progress() if self._query else []

    def reached(self) -> dict[str, Any] | None:
        """How far the source is delivered, in its own words; None before the first batch."""
        end = delivered_end(self.spec, self.spark)
        return self.spec.source.reached(end) if end is not None else None

    @property
    def query(self) -> PipelineQuery | None:
        """The present run, if there is one."""
        return self._query

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for a stop; `join` waits for it."""
        if self._thread.is_alive() and not self.reporter.report.status.ended:
            self.reporter.status(Status.STOPPING)
        self._stop.set()
        self._say()

    def pause(self) -> None:
        """Finish the batch, then hold still until `resume`. What a webhook receives meanwhile waits in its spool."""
        self._pause.set()
        self._say()

    def resume(self) -> None:
        self._pause.clear()
        self._say()

    def restart(self) -> None:
        """End the run and begin another; also what ended in an error begins anew."""
        self._pause.clear()
        if self._thread.is_alive():
            self._again.set()
            self._say()
            return
        self._stop.clear()
        self.reporter.status(Status.STARTING)
        self._thread = self._new_thread()
        self._thread.start()

    def abandon(self, batch_id: int | None = None) -> int | None:
        """Give up the batch that keeps failing, or only this one; None if it does not. Its rows are lost."""
        abandoned = self.failing_batch.abandon(batch_id)
        if abandoned is not None and not self._thread.is_alive():
            self.restart()
        return abandoned

    def halt_following(self) -> None:
        """Have the running batch end soon, so that the next one works by what is new."""
        if self._query is not None:
            self._query.halt_following()

    def _say(self) -> None:
        self._command.set()
        self.failing_batch.wake()

    def join(self, timeout_s: float | None = None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MOST_S)
        self._lag.start()
        try:
            while not self._stop.is_set():
                if self._pause.is_set():
                    self._wait_paused()
                    continue
                began = time.monotonic()
                error = self._run_once()
                if self._again.is_set() or (error is None and self._pause.is_set()):
                    self._again.clear()
                    continue
                if error is None:
                    break
                self._tell(error)
                if self._stop.is_set() or error.retry is not Retry.BACKOFF:
                    break
                if time.monotonic() - began > _HEALTHY_AFTER_S:
                    backoff.reset()
                self._command.wait(backoff.next_s())
                self._command.clear()
                self.reporter.restarted()
        finally:
            self._lag.stop()
            self.spec.source.stop()
            for destination in self.spec.destinations:
                destination.stop()
        if self.reporter.report.status is not Status.ERROR:
            self.reporter.status(Status.STOPPED)

    def _wait_paused(self) -> None:
        self.reporter.status(Status.PAUSED)
        while self._pause.is_set() and not self._stop.is_set():
            self._command.wait()
            self._command.clear()
        if not self._stop.is_set():
            self.reporter.status(Status.STARTING)

    def _run_once(self) -> HeadgateError | None:
        """One run of the query: None when it ended as it should, else what ended it."""
        self._query = query = PipelineQuery(self.spec, self.spark, self.reporter, self.routing, self.failing_batch)
        query.on_end = self._command.set
        query.interrupted = lambda: self._stop.is_set() or self._pause.is_set() or self._again.is_set()
        turn = self._turns.take(query.interrupted)
        try:
            self.spec.source.start()  # idempotent; what it raises is told like any other error
            query.start()
            for destination in self.spec.destinations:
                destination.start()
            self._watch(query, turn)
        except Exception as error:  # whatever Spark throws ends up in the status, never in a crash
            return None if self._stop.is_set() else from_spark(error).at(self.spec.where)
        finally:
            turn.end()
        return None

    def _watch(self, query: PipelineQuery, turn: Turn) -> None:
        """Wait for the query's end or an order."""
        if self.reporter.report.status is Status.STARTING:
            self.reporter.started()
        settle_at = time.monotonic() + _SETTLE_EVERY_S
        poll_s = _POLL_S
        while not (self._stop.is_set() or self._pause.is_set() or self._again.is_set()):
            self._command.wait(poll_s)
            self._command.clear()
            if query.ended():
                return
            is_busy = query.record_progress() or self._is_troubled or not turn.is_over
            poll_s = _POLL_S if is_busy else _IDLE_POLL_S
            turn.end_if(lambda: query.has_looked or bool(query.progress()))
            if time.monotonic() >= settle_at:
                query.settle()
                settle_at = time.monotonic() + _SETTLE_EVERY_S
            # A batch that succeeds is told by itself. That no batch has failed shows in a look that found nothing.
            if self._is_troubled and self.failing_batch.batch_id is None and query.has_looked:
                self.reporter.recovered()
                _log.info("pipeline runs again", extra={"pipeline": self.spec.name})
        query.stop(self.spec.stop_grace_s)

    @property
    def _is_troubled(self) -> bool:
        report = self.reporter.report
        return report.status is Status.DEGRADED or report.error is not None

    def _tell(self, error: HeadgateError) -> None:
        """Failures of a batch are in the report already; a query that cannot even start is degraded at once."""
        status = self.reporter.report.status
        if error.retry is not Retry.BACKOFF:
            self.reporter.status(Status.ERROR, error)
        elif status is Status.STARTING or not (self._query and self._query.told):
            self.reporter.failed(error, at_once=True)
        fields = {"pipeline": self.spec.name, "status": self.reporter.report.status.value, "error": error.as_dict()}
        _log.error("pipeline failed", extra=fields)
