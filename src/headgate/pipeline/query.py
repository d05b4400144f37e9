"""One run of one pipeline: builds the streaming query, and delivers each batch exactly when it must be."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.model import ConfigError, InternalError, StateError
from headgate.model.failpoints import failpoint
from headgate.pipeline.checkpoint import batch_end_offset, checkpoint_has_batches, checkpoint_query_id
from headgate.pipeline.delivery import delivery_frame
from headgate.pipeline.dispatch import BatchResult, collect_results, ensure_all, send_frame
from headgate.pipeline.failures import short
from headgate.pipeline.report import Reporter
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.state import State, StateFile
from headgate.pipeline.transforms import apply_transforms

__all__ = ["PipelineQuery"]

_START_TIMEOUT_S = 60.0


class PipelineQuery:
    """Starts Spark's query for a pipeline and handles its batches until it ends."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, reporter: Reporter) -> None:
        self._spec = spec
        self._spark = spark.newSession()  # its own temporary views, so that two pipelines can both say `batch`
        self._reporter = reporter
        self._state_file = StateFile(spec.state_path)
        self._state: State | None = None
        self._ready = threading.Event()
        self._batch = threading.Lock()  # held while a batch is being delivered
        self._stopping = threading.Event()
        self._query: StreamingQuery | None = None
        self._origin = ""

    def start(self) -> None:
        """Check that state and checkpoint fit together, prepare the destinations, and start the query."""
        spec = self._spec
        self._origin = spec.source.origin()
        identity = f"{spec.source.format}:{self._origin}"
        saved = self._state_file.read()
        self._check_state(saved, identity)
        self._check_checkpoint(saved)
        ensure_all(spec.destinations)
        writer = self._frame().writeStream.queryName(spec.name).foreachBatch(self._deliver)
        writer = writer.option("checkpointLocation", spec.checkpoint)
        if spec.until_caught_up:
            writer = writer.trigger(availableNow=True)
        elif spec.trigger_interval_s:
            writer = writer.trigger(processingTime=f"{spec.trigger_interval_s:.3f} seconds")
        query = writer.start()
        self._query = query
        self._state = saved or State(spec.name, identity, str(query.id))
        self._ready.set()

    def _frame(self) -> DataFrame:
        spec = self._spec
        if spec.shortcut:
            return send_frame(self._read(spec.shortcut.options), spec.destinations, spec.shortcut.rows)
        frame = apply_transforms(self._read({}), spec.transforms, where=spec.where)
        delivery = delivery_frame(
            frame,
            topic=spec.topic,
            origin=self._origin,
            payload_format=spec.payload_format,
            payload_column=spec.payload_column,
            where=spec.where,
        )
        return send_frame(delivery, spec.destinations)

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

    def _deliver(self, sent: DataFrame, batch_id: int) -> None:
        """Called by Spark for every batch. Returning means: this batch is delivered, and the state says so."""
        if not self._ready.wait(_START_TIMEOUT_S):
            raise InternalError("the query delivered a batch before it had started")
        with self._batch:
            assert self._state is not None
            if self._state.covers(batch_id):
                self._tell_source(batch_id)
                return
            if self._stopping.is_set():
                raise InternalError("the pipeline is stopping; the batch will come again")
            began = time.perf_counter()
            self._spec.before_batch()
            result = collect_results(sent, self._spec.destinations)
            failpoint("pipeline.sent")
            self._persist(batch_id, result)
            failpoint("pipeline.persisted")
            self._tell_source(batch_id)
            failpoint("pipeline.confirmed")
            self._reporter.batch(
                rows=result.rows,
                payload_bytes=result.payload_bytes,
                duplicates=result.duplicates,
                seconds=time.perf_counter() - began,
            )

    def _persist(self, batch_id: int, result: BatchResult) -> None:
        assert self._state is not None
        state = State(
            self._state.pipeline, self._state.source, self._state.query_id, batch_id, self._state.rows + result.rows
        )
        self._state_file.write(state)
        self._state = state

    def _tell_source(self, batch_id: int) -> None:
        """Only now may the source let go of what it kept for this batch."""
        end = batch_end_offset(self._spark, self._spec.checkpoint, batch_id)
        if end is not None:
            self._spec.source.commit(end)

    def ended(self) -> bool:
        """Whether the query has ended; raises what ended it, if it was an error."""
        assert self._query is not None
        if self._query.isActive:
            self._reporter.lag(self._lag())
            return False
        error = self._query.exception()
        if error is not None:
            raise error
        return True

    @property
    def idle(self) -> bool:
        """Whether the query runs and has nothing to do."""
        return self._query is not None and not self._query.status["isTriggerActive"]

    def stop(self, grace_s: float) -> None:
        """Let the running batch finish, then stop: a batch is either delivered and recorded, or not begun."""
        self._stopping.set()
        finished = self._batch.acquire(timeout=grace_s)
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            if finished:
                self._batch.release()

    def progress(self) -> list[dict[str, Any]]:
        """What Spark itself reports of the last batches: durations by phase, offsets, rates."""
        return [json.loads(report.json) for report in self._query.recentProgress] if self._query else []

    def _lag(self) -> int | None:
        assert self._query is not None
        last = self._query.lastProgress
        if not last:
            return None
        source = json.loads(last.json)["sources"][0]
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        return self._spec.source.lag_rows(end, latest) if end and latest else None

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
