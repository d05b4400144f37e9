"""What a pipeline says of itself: one object that the CLI, HTTP, metrics and logs all read."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from headgate.model import HeadgateError, Status
from headgate.pipeline.acks import Acks
from headgate.pipeline.spark_sums import SparkSums
from headgate.runtime.timings import Timings
from headgate.sources.base import Lag

__all__ = ["PHASES", "Report", "Reporter", "StatusChange", "with_source_error"]

_log = logging.getLogger(__name__)

_RATE_WINDOW_S = 10.0
_DURATIONS_KEPT = 200
_HISTORY_KEPT = 100
PHASES = ("send", "record", "commit")
DURATION_BUCKETS_S = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class StatusChange(NamedTuple):
    """When a pipeline went from one state to the next, and why."""

    status: Status
    at: float  # seconds since the epoch
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A pipeline at one moment. Totals count from the start of the process."""

    pipeline: str
    source: str
    destinations: tuple[str, ...]
    status: Status = Status.STARTING
    status_since: float = 0.0  # seconds since the epoch
    rows_total: int = 0
    bytes_total: int = 0
    duplicates_total: int = 0
    batches_total: int = 0
    restarts_total: int = 0
    errors_total: int = 0
    rows_per_second: float = 0.0
    last_batch_rows: int = 0
    last_batch_seconds: float = 0.0
    batch_seconds_p50: float = 0.0
    batch_durations: dict[str, Any] = field(default_factory=dict)  # a histogram: limits, counts between them, sum
    phase_durations: dict[str, Any] = field(default_factory=dict)  # the same of each phase: send, record, commit
    commit_to_ack: dict[str, Any] = field(
        default_factory=dict
    )  # the same, where the source knows when rows were committed
    spark: dict[str, Any] = field(default_factory=dict)  # what Spark reports of its queries: see `SparkSums`
    last_delivery: float | None = None  # seconds since the epoch
    lag_rows: int | None = None  # what the source has and is not delivered, in whatever it can tell
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    error: dict[str, str] | None = None  # the first of the present trouble: what comes after it may be its consequence
    last_error: dict[str, str] | None = None  # the newest, if it is another one
    failures_in_row: int = 0  # to start, or to complete a batch
    failing_batch: int | None = None  # which can be abandoned
    last_abandon_at: float | None = None  # seconds since the epoch
    abandoned_total: int = 0  # batches given up by hand
    history: tuple[StatusChange, ...] = ()  # the last ones, oldest first
    routing: dict[str, Any] = field(default_factory=dict)  # of pipelines whose rows say where they go
    source_details: dict[str, Any] = field(default_factory=dict)  # what the source says of itself
    destination_details: dict[str, Any] = field(default_factory=dict)  # the same of each destination, by its name

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"history": [change._asdict() for change in self.history]}


def with_source_error(report: Report, error: dict[str, str] | None) -> Report:
    """A pipeline whose source cannot be read is not well, although no batch has failed: there is none."""
    if error is None or report.status not in (Status.STARTING, Status.RUNNING):
        return report
    status = Status.DEGRADED if report.status is Status.RUNNING else report.status
    return replace(report, status=status, error=report.error or error)


class Reporter:
    """Keeps a pipeline's report up to date. Written by its supervisor, read by any thread."""

    def __init__(
        self, pipeline: str, source: str, destinations: tuple[str, ...], *, failure_threshold: int = 16
    ) -> None:
        self._failure_threshold = failure_threshold
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._report = Report(pipeline, source, destinations, status_since=time.time())
        self._recent: deque[tuple[float, int]] = deque()
        self._durations: deque[float] = deque(maxlen=_DURATIONS_KEPT)
        self._counts = [0] * (len(DURATION_BUCKETS_S) + 1)  # of batches by how long they took
        self._seconds = 0.0
        self._acks = Acks()
        self.spark = SparkSums()
        self._phases = {phase: Timings(DURATION_BUCKETS_S) for phase in PHASES}

    @property
    def report(self) -> Report:
        with self._lock:
            durations = {"limits": list(DURATION_BUCKETS_S), "counts": list(self._counts), "sum": self._seconds}
            rate = self._rate(time.monotonic())
            phases = {phase: timings.as_dict() for phase, timings in self._phases.items()}
            return replace(
                self._report,
                rows_per_second=rate,
                batch_durations=durations,
                phase_durations=phases,
                commit_to_ack=self._acks.as_dict(),
                spark=self.spark.as_dict(),
            )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the report, wake those who wait for it, and log a new state, which may wait, without the lock."""
        with self._changed:
            before = self._report.status
            yield
            after = self._report
            self._changed.notify_all()
        if after.status is not before:
            fields = {"pipeline": after.pipeline, "status": after.status.value, "before": before.value}
            _log.info("pipeline state", extra=fields)

    def status(self, status: Status, error: HeadgateError | None = None) -> None:
        with self._changing():
            known = self._report
            told = _first_and_last(known, error) if error and status is Status.DEGRADED else _only(error)
            self._report = replace(
                self._in(status, error), **told, errors_total=known.errors_total + (error is not None)
            )

    def started(self) -> None:
        """A run has begun. It proves nothing: what failed before it is told until it succeeds."""
        with self._changing():
            self._report = self._in(Status.RUNNING)

    def recovered(self) -> None:
        """The source was asked and there is nothing left that failed."""
        with self._changing():
            self._report = replace(self._in(Status.RUNNING), **_only(None), failures_in_row=0)

    def failed(self, error: HeadgateError, *, at_once: bool = False) -> None:
        """A batch could not be completed, and will be tried again. So many in a row, and the status says so.

        A query that cannot even start is degraded at once.
        """
        with self._changing():
            known = self._report
            failures = known.failures_in_row + 1
            degraded = (at_once or failures >= self._failure_threshold) and not known.status.ended
            self._report = replace(
                self._in(Status.DEGRADED, error) if degraded else known,
                **_first_and_last(known, error),
                errors_total=known.errors_total + 1,
                failures_in_row=failures,
            )

    def abandoned(self) -> None:
        """A batch was given up by hand."""
        with self._changing():
            known = self._report
            self._report = replace(
                self._in(Status.RUNNING) if known.status is Status.DEGRADED else known,
                **_only(None),
                failures_in_row=0,
                last_abandon_at=time.time(),
                abandoned_total=known.abandoned_total + 1,
            )

    def _in(self, status: Status, error: HeadgateError | None = None) -> Report:
        """The report with a new status, if it is one."""
        known = self._report
        if status is known.status:
            return known
        now = time.time()
        change = StatusChange(status, now, str(error) if error else None)
        return replace(known, status=status, status_since=now, history=(*known.history, change)[-_HISTORY_KEPT:])

    def restarted(self) -> None:
        with self._lock:
            self._report = replace(self._report, restarts_total=self._report.restarts_total + 1)

    def lag(self, lag: Lag | None) -> None:
        found = lag or Lag()
        with self._lock:
            self._report = replace(self._report, lag_rows=found.rows, lag_bytes=found.bytes, lag_seconds=found.seconds)

    def batch(self, *, rows: int, payload_bytes: int, duplicates: int, seconds: float | None) -> None:
        """A batch is delivered. `seconds` it took; None if it followed its source, and so took as long as it liked."""
        with self._changing():
            known = self._delivered(rows, payload_bytes, duplicates)
            known = replace(known, batches_total=known.batches_total + 1, last_batch_rows=rows)
            if seconds is not None:
                self._durations.append(seconds)
                self._counts[bisect_left(DURATION_BUCKETS_S, seconds)] += 1
                self._seconds += seconds
                median = sorted(self._durations)[len(self._durations) // 2]
                known = replace(known, last_batch_seconds=seconds, batch_seconds_p50=median)
            self._report = known

    def phase(self, phase: str, seconds: float) -> None:
        """Count how long a phase of a batch took, with every attempt that it needed. `phase` is one of `PHASES`."""
        with self._lock:
            self._phases[phase].observe(seconds)

    def acknowledged(self, acks: Acks) -> None:
        """Count how long rows took from their commit to the acknowledgement."""
        with self._lock:
            self._acks.add(acks)

    def followed(self, rows: int, payload_bytes: int, duplicates: int) -> None:
        """A batch that follows its source has delivered its range, and these rows since the last time."""
        with self._changing():
            self._report = self._delivered(rows, payload_bytes, duplicates)

    def _delivered(self, rows: int, payload_bytes: int, duplicates: int) -> Report:
        self._recent.append((time.monotonic(), rows))
        known = self._in(Status.RUNNING) if self._report.status is Status.DEGRADED else self._report
        return replace(
            known,
            **_only(None),
            failures_in_row=0,
            rows_total=known.rows_total + rows,
            bytes_total=known.bytes_total + payload_bytes,
            duplicates_total=known.duplicates_total + duplicates,
            last_delivery=time.time() if rows else known.last_delivery,
        )

    def wait_for(self, *statuses: Status, timeout_s: float) -> bool:
        """Wait until the pipeline is in one of these states."""
        with self._changed:
            return self._changed.wait_for(lambda: self._report.status in statuses, timeout_s)

    def wait_for_rows(self, rows: int, timeout_s: float) -> bool:
        """Wait until so many rows have been delivered by this process."""
        with self._changed:
            return self._changed.wait_for(lambda: self._report.rows_total >= rows, timeout_s)

    def _rate(self, now: float) -> float:
        while self._recent and self._recent[0][0] < now - _RATE_WINDOW_S:
            self._recent.popleft()
        if not self._recent:
            return 0.0
        span = max(now - self._recent[0][0], 1.0)
        return sum(rows for _, rows in self._recent) / span


def _only(error: HeadgateError | None) -> dict[str, Any]:
    return {"error": error.as_dict() if error else None, "last_error": None}


def _first_and_last(known: Report, error: HeadgateError) -> dict[str, Any]:
    """While trouble lasts, its first error stays: "circuit_open" says less than what opened the circuit."""
    new = error.as_dict()
    is_going_on = known.failures_in_row > 0 or known.status is Status.DEGRADED
    first = known.error if is_going_on and known.error else new
    return {"error": first, "last_error": None if new == first else new}
