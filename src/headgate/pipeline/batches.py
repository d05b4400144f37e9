"""Delivers batch after batch: send, record, commit, in this order, each tried again until it is done.

What was sent is recorded only when every row is safe, and committed only when it is recorded. A crash between two steps
repeats a step, and never skips one.

A batch that follows its source has no end of its own. How far it has come is recorded and committed now and then while
it goes on, in the same order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame

from headgate.model import HeadgateError, InternalError, Retry, StateError
from headgate.pipeline.acks import Acks
from headgate.pipeline.dispatch import BatchResult
from headgate.pipeline.failures import from_spark
from headgate.pipeline.following import NOTHING, Progress
from headgate.pipeline.report import Reporter
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.state import State, StateFile
from headgate.pipeline.traces import Delivered, Traces
from headgate.runtime.backoff import Backoff
from headgate.runtime.failpoints import failpoint
from headgate.sources.base import Offset

__all__ = ["Batches", "FailingBatch"]

_log = logging.getLogger(__name__)

_PAUSE_FIRST_S = 0.1
_PAUSE_MOST_S = 30.0
# A failure may lie in the query itself, such as a reader that died; then a new query is the cure, and takes seconds.
_ATTEMPTS_IN_PLACE = 6

T = TypeVar("T")


class FailingBatch:
    """The batch that keeps failing, if one does, and whether somebody has given it up. Outlives a run of the query."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._batch_id: int | None = None
        self._abandoned: int | None = None
        self._woken = False

    def failing(self, batch_id: int) -> None:
        with self._changed:
            self._batch_id = batch_id

    def over(self) -> None:
        with self._changed:
            self._batch_id = self._abandoned = None

    @property
    def batch_id(self) -> int | None:
        """The batch that fails, if one does."""
        return self._batch_id

    def abandon(self, batch_id: int | None = None) -> int | None:
        """Give up the batch that fails, or only this one; None if it does not."""
        with self._changed:
            if batch_id not in (None, self._batch_id):
                return None
            self._abandoned = self._batch_id
            self._changed.notify_all()
            return self._abandoned

    def is_abandoned(self, batch_id: int) -> bool:
        return self._abandoned == batch_id

    def wake(self) -> None:
        """End a pause early."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def pause(self, seconds: float, batch_id: int) -> None:
        """Wait before the next attempt; a stop, a reload and an order to abandon end it."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._abandoned == batch_id, seconds)
            self._woken = False


class Batches:
    """The batches of one run of a query."""

    def __init__(
        self,
        spec: PipelineSpec,
        reporter: Reporter,
        state: State,
        failing_batch: FailingBatch,
        *,
        send: Callable[[DataFrame, int], BatchResult],
        end_offset: Callable[[int], Offset | None],
        traces: Traces | None = None,
    ) -> None:
        self._spec = spec
        self._reporter = reporter
        self._state = state
        self._file = StateFile(spec.state_path)
        self._failing_batch = failing_batch
        self._send = send
        self._end_offset = end_offset
        self._traces = traces or Traces(spec)
        self._stopping = threading.Event()
        self._owed: Offset | None = None  # a commit that failed and waits for its next turn
        self._recording = threading.Lock()  # held while the state is written
        self._under_way: int | None = None  # the batch that is being sent
        self._recorded = NOTHING  # what the state knows of it
        self._told = NOTHING  # what the report knows of it
        self._reached: Offset | None = None  # how far this run has committed
        self._uncommitted: Offset | None = None  # recorded while a batch went on
        self.told = False  # whether the error that ended the run is in the report already

    def deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Returning means: this batch is delivered, and the state says so."""
        if self._state.covers(batch_id):
            self._commit(batch_id)
            self._failing_batch.over()
            return
        began_at, began = time.time(), time.perf_counter()
        self._begin(batch_id)
        result = self._sent(frame, batch_id)
        sent = time.perf_counter()
        failpoint("pipeline.sent")
        self._end()
        committed_at = self._committed_at(batch_id, result)
        acks = _acknowledged(result, committed_at, self._told)
        self._until_done(lambda: self._persist(batch_id, result), batch_id)
        recorded = time.perf_counter()
        failpoint("pipeline.persisted")
        self._commit(batch_id)
        committed = time.perf_counter()
        failpoint("pipeline.confirmed")
        self._failing_batch.over()
        if result is not None:
            self._reporter.batch(
                rows=result.rows - self._told.rows,
                payload_bytes=result.payload_bytes - self._told.payload_bytes,
                duplicates=result.duplicates - self._told.duplicates,
                seconds=None if result.end else committed - began,
            )
            self._reporter.acknowledged(acks)
            if not result.end:  # one that follows its source sends for as long as it likes
                self._reporter.phase("send", sent - began)
            self._reporter.phase("record", recorded - sent)
            self._reporter.phase("commit", committed - recorded)
            self._trace(
                batch_id, result, committed_at, began_at, [each - began for each in (sent, recorded, committed)]
            )
            fields = {
                "pipeline": self._spec.name,
                "batch": batch_id,
                "rows": result.rows,
                "bytes": result.payload_bytes,
            }
            _log.debug("batch delivered", extra=fields | {"seconds": round(committed - began, 3)})

    def _trace(
        self, batch_id: int, result: BatchResult, committed_at: float | None, began_at: float, ends: Sequence[float]
    ) -> None:
        """Hand a delivered batch to the traces. Of one that followed, every step has been traced already."""
        if result.end or not self._traces.is_on:
            return
        sent, recorded, committed = (began_at + each for each in ends)
        counts = (result.rows, result.payload_bytes, result.duplicates)
        moments = (began_at, sent, recorded, committed)
        self._traces.delivered(Delivered(batch_id, *moments, *counts, committed_at, result.moments))

    def _begin(self, batch_id: int) -> None:
        with self._recording:
            self._under_way = batch_id
            self._recorded = self._told = NOTHING

    def _end(self) -> None:
        """From here on only the batch's own result counts."""
        with self._recording:
            self._under_way = None

    @property
    def under_way(self) -> int | None:
        """The batch that is being sent, if one is."""
        return self._under_way

    def record(self, progress: Progress) -> None:
        """Record and commit how far the batch under way has come. What raises here is tried again at the next call."""
        seen_at = time.time()
        with self._recording:
            if progress.batch_id != self._under_way:
                return
            rows = progress.since(self._recorded).rows
            if rows:
                state = replace(self._state, rows=self._state.rows + rows, end=progress.end)
                self._file.write(state)
                self._state, self._uncommitted = state, progress.end
                failpoint("pipeline.recorded")
            self._recorded = progress
        recorded_at = time.time()
        if self._uncommitted:
            self._spec.source.commit(self._uncommitted)
            self._reached, self._uncommitted = self._uncommitted, None
        if progress != self._told:
            news, self._told = progress.since(self._told), progress
            self._failing_batch.over()
            self._reporter.followed(news.rows, news.payload_bytes, news.duplicates)
            self._reporter.acknowledged(news.acks)
            if news.rows and self._traces.is_on:
                counts = (news.rows, news.payload_bytes, news.duplicates)
                began_at = news.moments.began if news.moments else seen_at
                moments = (min(began_at, seen_at), seen_at, recorded_at, time.time())
                self._traces.step(Delivered(progress.batch_id, *moments, *counts, news.committed_at, news.moments))

    def _sent(self, frame: DataFrame, batch_id: int) -> BatchResult | None:
        """The result of a batch, or None if it was given up."""

        def attempt() -> BatchResult | None:
            if self._failing_batch.is_abandoned(batch_id):
                _log.warning("batch abandoned", extra={"pipeline": self._spec.name, "batch": batch_id})
                self._reporter.abandoned()
                return None
            self._spec.before_batch()
            return self._send(frame, batch_id)

        return self._until_done(attempt, batch_id)

    def _committed_at(self, batch_id: int, result: BatchResult | None) -> float | None:
        """When the oldest row of a batch was committed at its source, if that knows; one that followed has told it."""
        if result is None or not result.rows or result.end or self._spec.source.mode().kind != "cdc":
            return None
        try:
            after = self._reached or (self._end_offset(batch_id - 1) if batch_id else None)
            return self._spec.source.committed_at(after)
        except (HeadgateError, OSError) as error:  # a number that is missing must not hold up a batch
            _log.debug("commit-to-ack is not known", extra={"pipeline": self._spec.name, "error": str(error)})
            return None

    def _persist(self, batch_id: int, result: BatchResult | None) -> None:
        rows = result.rows - self._recorded.rows if result else 0
        end = result.end if result and result.end else self._state.end
        state = replace(self._state, batch_id=batch_id, rows=self._state.rows + rows, end=end)
        with self._recording:
            self._file.write(state)
            self._state = state

    def _commit(self, batch_id: int) -> None:
        """Only now may the source let go of what it kept for this batch. What a failure means depends on the source."""
        for end in (self._end_offset(batch_id), self._state.end):
            if end is not None:
                self._commit_up_to(end, batch_id)
                self._reached = end

    def _commit_up_to(self, end: Offset, batch_id: int) -> None:
        mode = self._spec.source.mode()
        if mode.kind == "cdc":
            self._until_done(lambda: self._spec.source.commit(end), batch_id)
        elif mode.kind == "polling":
            self._owed = end
            self.settle()
        else:
            self._commit_once(end)

    def _commit_once(self, end: Offset) -> None:
        try:
            self._spec.source.commit(end)
        except Exception as error:
            raise StateError(
                f"the source cannot let go of what was delivered: {from_spark(error).message}",
                where=f"sources.{self._spec.source.name}",
                remedy="mend the source, then restart the pipeline",
            ) from error

    def settle(self) -> None:
        """Make up for a commit that failed; if it fails again, the next turn tries."""
        end = self._owed
        if end is None:
            return
        try:
            self._spec.source.commit(end)
        except Exception as error:
            told = from_spark(error).at(f"sources.{self._spec.source.name}")
            self._reporter.failed(told)
            _log.warning("commit failed", extra={"pipeline": self._spec.name, "error": told.as_dict()})
        else:
            self._owed = None

    def _until_done(self, step: Callable[[], T], batch_id: int) -> T:
        """Try a step until it succeeds. Raises what trying again cannot mend, and after some attempts also the rest."""
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_MOST_S)
        for attempt in range(1, _ATTEMPTS_IN_PLACE + 1):
            began_at = time.time()
            try:
                return step()
            except Exception as error:  # Spark's errors have no common ancestor
                told = from_spark(error).at(self._spec.where)
                self._failed(told, batch_id, began_at)
                if told.retry is not Retry.BACKOFF or attempt == _ATTEMPTS_IN_PLACE:
                    self.told = True
                    raise told from error
            self._failing_batch.pause(backoff.next_s(), batch_id)
            # Only here: what has begun is finished, or what was sent would not be recorded.
            if self._stopping.is_set():
                raise InternalError("the pipeline is stopping; the batch will come again")
        raise AssertionError("unreachable")

    def _failed(self, error: HeadgateError, batch_id: int, began_at: float) -> None:
        self._failing_batch.failing(batch_id)
        self._reporter.failed(error)
        fields = {"pipeline": self._spec.name, "batch": batch_id, "error": error.as_dict()}
        _log.warning("batch failed", extra=fields)
        if self._traces.is_on:
            self._traces.failed(batch_id, began_at, time.time(), error)

    def stop(self) -> None:
        """No further attempts."""
        self._stopping.set()
        self._failing_batch.wake()


def _acknowledged(result: BatchResult | None, committed_at: float | None, told: Progress) -> Acks:
    """How long it took from commit to acknowledgement. A task that followed tells; else its oldest row counts."""
    if result is not None and result.end:
        return result.acks.since(told.acks)
    acks = Acks()
    acks.observe(committed_at, time.time())
    return acks
