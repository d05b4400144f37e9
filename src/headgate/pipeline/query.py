"""One run of one pipeline: builds the streaming query, and delivers each batch exactly when it must be."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.model import ConfigError, HeadgateError, InternalError, StateError
from headgate.pipeline.batches import Batches, FailingBatch
from headgate.pipeline.checkpoint import batch_end_offset, checkpoint_has_batches, checkpoint_query_id
from headgate.pipeline.delivery import delivery_of
from headgate.pipeline.dispatch import (
    BatchResult,
    collect_results,
    ensure_all,
    following_frame,
    send_frame,
    send_initial,
)
from headgate.pipeline.failures import from_spark, short
from headgate.pipeline.following import Following, Progress
from headgate.pipeline.report import Reporter
from headgate.pipeline.routing.runtime import Routing
from headgate.pipeline.routing.spark_job import Followed
from headgate.pipeline.spark_reports import SparkReports
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.state import State, StateFile
from headgate.pipeline.traces import Traces
from headgate.sources.base import Lag

__all__ = ["PipelineQuery"]

_log = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
_HALT_EVERY_S = 0.1
_LAG_EVERY_S = 1.0  # while the task says nothing new


class PipelineQuery:
    """Starts Spark's query for a pipeline and handles its batches until it ends."""

    def __init__(
        self,
        spec: PipelineSpec,
        spark: SparkSession,
        reporter: Reporter,
        routing: Routing | None = None,
        failing_batch: FailingBatch | None = None,
    ) -> None:
        self._spec = spec
        self._spark = spark.newSession()  # its own temporary views, so that two pipelines can both say `batch`
        self._reporter = reporter
        self._routing = routing
        self._failing_batch = failing_batch or FailingBatch()
        self._traces = Traces(spec)
        self._batches: Batches | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self.delivery_lock = threading.Lock()  # held while a batch is delivered
        self._query: StreamingQuery | None = None
        self._terminated = threading.Event()
        self._following = Following(spec.state_path.parent / "following") if spec.follows else None
        self._reports = SparkReports(
            reporter.spark, follows=spec.follows, on_batch=self._reported, on_end=self._traces.flush
        )
        self._origin = ""
        self._recorded: Progress | None = None
        self._lag_at = 0.0  # when to look at the lag again
        self.is_following = False  # what its batch was about is delivered and recorded, and it waits for more
        self.interrupted: Callable[[], bool] = self._stopping.is_set  # whether to end what comes before the query
        self.on_end: Callable[[], None] = lambda: None  # called by another thread

    def start(self) -> None:
        """Check that state and checkpoint fit together, prepare the destinations, and start the query."""
        spec = self._spec
        self._origin = spec.origin()
        identity = f"{spec.source.format}:{self._origin}"
        saved = StateFile(spec.state_path).read()
        self._check_state(saved, identity)
        self._check_checkpoint(saved)
        if saved is not None and saved.end is not None:
            spec.source.commit(saved.end)  # a crash may have come between the record and the commit
        ensure_all(spec.destinations, have_rows=saved is not None and saved.rows > 0)
        last_ids = [last for each in spec.destinations if (last := each.last_message_id())]
        spec.source.delivered_before(last_ids)
        self._send_initial_rows(last_ids, is_new=saved is None)
        if self._routing:
            self._routing.start()
        writer = self._frame().writeStream.queryName(spec.name).foreachBatch(self._deliver)
        writer = writer.option("checkpointLocation", spec.checkpoint)
        if spec.until_caught_up:
            writer = writer.trigger(availableNow=True)
        elif spec.trigger_interval_s:
            writer = writer.trigger(processingTime=f"{spec.trigger_interval_s:.3f} seconds")
        self._reports.listen(self._spark)
        query = writer.start()
        self._query = query
        threading.Thread(target=self._await_end, args=(query,), name=f"end-{spec.name}", daemon=True).start()
        self._batches = Batches(
            spec,
            self._reporter,
            saved or State(spec.name, identity, str(query.id)),
            self._failing_batch,
            send=self._send,
            end_offset=lambda batch_id: batch_end_offset(self._spark, spec.checkpoint, batch_id),
            traces=self._traces,
        )
        self._ready.set()

    def _send_initial_rows(self, last_ids: list[str], *, is_new: bool) -> None:
        """What the source has before its first batch, where rows are sent as they are."""
        if self._spec.shortcut is None or self._routing:
            return
        rows = self._spec.source.initial_rows(last_ids, is_new=is_new)
        if rows is not None:
            self._spec.before_batch()
            sent = send_initial(rows.batches, self._spec.destinations, self.interrupted)
            rows.done()
            _log.info("rows of the initial snapshot were sent", extra={"pipeline": self._spec.name, "rows": sent})

    def _frame(self) -> DataFrame:
        """The plan of the query. Rows that say where they go are sent by a job of their own, with the rules of now."""
        spec = self._spec
        if self._following:
            assert spec.shortcut
            located = self._read(spec.shortcut.options | spec.shortcut.follow_options)
            if self._by_batch:
                return located
            return following_frame(located, spec.destinations, spec.shortcut_follow(), self._following)
        if spec.shortcut:
            located = self._read(spec.shortcut.options)
            return located if self._by_batch else send_frame(located, spec.destinations, spec.shortcut_rows())
        delivery = delivery_of(self._read({}), spec, self._origin)
        return delivery if self._by_batch else send_frame(delivery, spec.destinations)

    @property
    def _by_batch(self) -> bool:
        """Whether senders must know more than can be said when the query starts: its rules of now, or its batch."""
        return self._routing is not None or any(each.by_batch for each in self._spec.destinations)

    def _read(self, more_options: dict[str, str]) -> DataFrame:
        source = self._spec.source
        try:
            frame: DataFrame = source.load(self._spark.readStream.options(**more_options))
        except AnalysisException as error:
            raise ConfigError(
                f"the source cannot be opened: {short(error)}",
                where=f"sources.{source.name}",
                remedy="try: headgate check",
            ) from None
        return frame

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Spark for every batch. Returning means: this batch is delivered, and the state says so."""
        if not self._ready.wait(_START_TIMEOUT_S):
            raise InternalError("the query delivered a batch before it had started")
        with self.delivery_lock:
            if self._stopping.is_set():
                raise InternalError("the pipeline is stopping; the batch will come again")
            assert self._batches is not None
            if self._following:
                self._following.allow()
                if self._stopping.is_set():  # said between the two: whoever stops has halted already
                    self.halt_following()
            self._batches.deliver(frame, batch_id)

    def hold_delivery(self, timeout_s: float) -> bool:
        """Take the delivery lock: no batch begins until it is released. One that follows its source is ended."""
        deadline = time.monotonic() + timeout_s
        while not self.delivery_lock.acquire(timeout=_HALT_EVERY_S):
            self.halt_following()  # again: a batch that was about to begin may have allowed it
            if time.monotonic() > deadline:
                return False
        return True

    def halt_following(self) -> None:
        """Have the batch end that follows its source, if one does; the next one begins where it ended."""
        if self._following:
            self._following.halt()
            self._spec.source.wake()

    def record_progress(self) -> bool:
        """Record how far the batch that follows its source has come; return whether that is news.

        What fails is told, and tried again.
        """
        batches = self._batches
        if not (self._following and batches and batches.under_way is not None):
            return False
        progress = self._following.progress(batches.under_way)
        self.is_following = False
        if progress is None:
            return False
        now = time.monotonic()
        is_news = progress is not self._recorded
        if not is_news and now < self._lag_at:
            self.is_following = True
            return False
        try:
            batches.record(progress)
            self.is_following = True
            self._reporter.lag(Lag(rows=self._spec.source.lag_rows(progress.end, progress.end)))
            self._recorded, self._lag_at = progress, now + _LAG_EVERY_S
        except HeadgateError as error:
            self._reporter.failed(error.at(self._spec.where))
            _log.warning("progress is not recorded", extra={"pipeline": self._spec.name, "error": error.as_dict()})
        return is_news

    def _send(self, frame: DataFrame, batch_id: int) -> BatchResult:
        destinations = self._spec.destinations
        rows = self._spec.shortcut_rows()
        if self._routing:
            followed = Followed(self._spec.shortcut_follow(), self._following) if self._following else None
            return self._routing.deliver(frame, rows, batch_id, self._origin, followed)
        number = self._spec.first_batch + batch_id
        sent = send_frame(frame, destinations, rows, number) if self._by_batch else frame
        return collect_results(sent, destinations, number)

    @property
    def told(self) -> bool:
        """Whether the error that ended the query has been reported already."""
        return self._batches is not None and self._batches.told

    def settle(self) -> None:
        """Make up for a commit that failed, between batches."""
        if self._batches is not None and self.delivery_lock.acquire(blocking=False):
            try:
                self._batches.settle()
            finally:
                self.delivery_lock.release()

    def ended(self) -> bool:
        """Whether the query has ended; raises what ended it, if it was an error."""
        assert self._query is not None
        if not self._terminated.is_set():
            return False
        error = self._query.exception()
        if error is not None:
            raise error
        return True

    def _await_end(self, query: StreamingQuery) -> None:
        """Sleep in Java until the query ends: asking it now and then would keep both awake."""
        try:
            query.awaitTermination()
        except Exception as error:  # what ended it is asked for by who wants to know; Spark's words may be of a row
            told = from_spark(error).as_dict()
            _log.debug("the query ended", extra={"pipeline": self._spec.name, "error": told})
        finally:
            self._terminated.set()
            self.on_end()

    @property
    def has_looked(self) -> bool:
        """Whether the query has asked its source, and found nothing that is left to do."""
        if self._query is None:
            return False
        if self._following:
            return self.is_following
        status = self._query.status
        return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting for")

    def stop(self, grace_s: float) -> None:
        """Let the running batch finish, then stop: a batch is either delivered and recorded, or not begun."""
        self._stopping.set()
        self.halt_following()
        if self._batches is not None:
            self._batches.stop()
        # Not held while Spark stops: it waits for a batch that is about to begin, which waits for the lock to be told.
        if self.delivery_lock.acquire(timeout=grace_s):
            self.delivery_lock.release()
        if self._query is not None:
            self._query.stop()

    def progress(self) -> list[dict[str, Any]]:
        """What Spark itself reports of the last batches: durations by phase, offsets, rates."""
        return self._reports.latest()

    def _reported(self, report: dict[str, Any]) -> None:
        """Spark has told of a batch."""
        self._traces.planned(report)
        self._tell_lag(report)

    def _tell_lag(self, report: dict[str, Any]) -> None:
        """For readers that report their latest offset; Spark knows it only of those."""
        if self._following:
            return
        source = report["sources"][0]
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end and latest:
            self._reporter.lag(Lag(rows=self._spec.source.lag_rows(end, latest)))

    def _check_state(self, saved: State | None, identity: str) -> None:
        if saved is not None and saved.source != identity:
            raise StateError(
                f"the saved state belongs to the source {saved.source}, the configuration says {identity}",
                where=str(self._spec.state_path),
                remedy=f"restore the source, rename the pipeline, or start anew: headgate reset {self._spec.name}",
            )

    def _check_checkpoint(self, saved: State | None) -> None:
        """State and checkpoint are two records of one run; each without the other would lose or repeat rows."""
        found = checkpoint_query_id(self._spark, self._spec.checkpoint)
        if (saved.query_id if saved else None) == found:
            return
        if saved is None and found is not None and not checkpoint_has_batches(self._spark, self._spec.checkpoint):
            return  # a first run that ended before its first batch
        what = "is missing" if found is None else "belongs to another run or pipeline"
        record = "the state file is missing" if saved is None else f"the checkpoint {what}"
        raise StateError(
            f"{record}: state {self._spec.state_path}, checkpoint {self._spec.checkpoint}",
            where=self._spec.where,
            remedy=f"put both back as they were, or start anew: headgate reset {self._spec.name}",
        )


def _offset(value: Any) -> dict[str, Any] | None:
    loaded = json.loads(value) if isinstance(value, str) else value
    return loaded if isinstance(loaded, dict) else None
