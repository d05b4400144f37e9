"""A trace for each batch: from the commit at the source through plan, sending and acknowledgement to the state.

    deliver NAME
      read     from the commit of the oldest change in the WAL until Spark planned the batch, or a task had it
      plan     Spark plans the batch
      send     rows are decoded and handed to destinations
      ack      destinations make the last of them durable
      record   the state is written
      commit   the source may let go of what was delivered

A batch that follows its source gives a trace for each step that is recorded, of the last rows in it. The spans are made
when all is known, from moments that were noted anyway, and only if OpenTelemetry's SDK is set up: without it a batch
pays for one comparison. No span carries anything of a row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, SpanKind, StatusCode

from headgate import __version__
from headgate.model import HeadgateError
from headgate.pipeline.acks import Moments
from headgate.pipeline.spec import PipelineSpec

__all__ = ["Delivered", "Traces"]

_PLANNING = ("latestOffset", "walCommit", "getBatch", "queryPlanning")

Phase = tuple[str, float, float]  # its name, and when it began and ended, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch, or a step of one that follows its source, with the moments of its delivery."""

    batch_id: int
    began: float  # the sending, as the driver has it
    sent: float  # and its end
    recorded: float
    committed: float
    rows: int
    payload_bytes: int
    duplicates: int
    committed_at: float | None = None  # the oldest change, at the source
    moments: Moments | None = None  # of the tasks


class Traces:
    """The traces of one run of a query. Safe in any thread."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._name = f"deliver {spec.name}"
        self._attributes: dict[str, str | Sequence[str]] = {
            "headgate.pipeline": spec.name,
            "headgate.source": spec.source.name,
            "headgate.destinations": [each.name for each in spec.destinations],
        }
        self._lock = threading.Lock()
        self._waiting: Delivered | None = None  # for what Spark reports of its plan

    @property
    def is_on(self) -> bool:
        """Whether somebody wants to have traces."""
        return not isinstance(trace.get_tracer_provider(), (ProxyTracerProvider, NoOpTracerProvider))

    def delivered(self, batch: Delivered) -> None:
        """A batch is delivered; its trace is made when Spark has told how it was planned."""
        self.flush()
        with self._lock:
            self._waiting = batch

    def planned(self, report: dict[str, Any]) -> None:
        """Take in Spark's report of a batch."""
        with self._lock:
            batch = self._waiting
            if batch is None or batch.batch_id != report.get("batchId"):
                return
            self._waiting = None
        try:
            planned_at = datetime.fromisoformat(str(report.get("timestamp"))).timestamp()
        except ValueError:
            planned_at = batch.began
        durations = report.get("durationMs") or {}
        parts = {f"headgate.plan.{part}_ms": durations[part] for part in _PLANNING if part in durations}
        self._make(batch, min(planned_at, batch.began), parts)

    def flush(self) -> None:
        """Make the trace of a batch of which Spark has told nothing."""
        with self._lock:
            batch, self._waiting = self._waiting, None
        if batch is not None:
            self._make(batch, None, {})

    def step(self, batch: Delivered) -> None:
        """A step of a batch that follows its source is recorded."""
        self._make(batch, None, {})

    def failed(self, batch_id: int, began: float, ended: float, error: HeadgateError) -> None:
        """An attempt at a batch has failed. Of its error the kind is told alone: its words may be of a row."""
        attributes: dict[str, Any] = {"headgate.batch": batch_id, "error.type": str(error.kind)}
        span = self._tracer.start_span(
            self._name, Context(), SpanKind.PRODUCER, {**self._attributes, **attributes}, start_time=_ns(began)
        )
        span.set_status(StatusCode.ERROR, str(error.kind))
        span.end(_ns(max(began, ended)))

    @property
    def _tracer(self) -> trace.Tracer:
        return trace.get_tracer("headgate.pipeline", __version__)

    def _make(self, batch: Delivered, planned_at: float | None, plan: dict[str, int]) -> None:
        phases = _phases(batch, planned_at)
        attributes: dict[str, Any] = {
            "headgate.batch": batch.batch_id,
            "headgate.rows": batch.rows,
            "headgate.payload_bytes": batch.payload_bytes,
            "headgate.duplicates": batch.duplicates,
        }
        start = min(began for _, began, _ in phases)
        tracer = self._tracer
        root = tracer.start_span(
            self._name, Context(), SpanKind.PRODUCER, {**self._attributes, **attributes}, start_time=_ns(start)
        )
        if root.is_recording():
            context = trace.set_span_in_context(root, Context())
            for name, began, ended in phases:
                of_it = plan if name == "plan" else None
                tracer.start_span(name, context, attributes=of_it, start_time=_ns(began)).end(_ns(ended))
        root.end(_ns(batch.committed))


def _phases(batch: Delivered, planned_at: float | None) -> list[Phase]:
    """What happened, in order. Tasks may run where the clock is another: what they tell stays within the driver's."""
    moments = batch.moments or Moments(batch.began, batch.sent, batch.sent)
    began, handed_over, acked = (
        min(max(moment, batch.began), batch.sent) for moment in (moments.began, moments.sent, moments.acked)
    )
    has_it_at = planned_at if planned_at is not None else began
    phases: list[Phase] = []
    if batch.committed_at is not None:
        phases.append(("read", min(batch.committed_at, has_it_at), has_it_at))
    if planned_at is not None:
        phases.append(("plan", planned_at, batch.began))
    phases.append(("send", began, handed_over))
    if batch.moments is not None:
        phases.append(("ack", handed_over, acked))
    phases += [("record", batch.sent, batch.recorded), ("commit", batch.recorded, batch.committed)]
    return phases


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
