"""The last fifteen minutes of every pipeline, sampled in memory: what sparklines and rates are made of."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from headgate.control.pipelines import PipelineControl
from headgate.pipeline.report import Report

__all__ = ["KEPT_S", "History", "Sample"]

_log = logging.getLogger(__name__)

KEPT_S = 900.0
_EVERY_S = 5.0
_SPAN_S = 12.0  # a rate is that of the samples of so many seconds


class _Sampled(Protocol):
    def reports(self) -> list[Report]: ...

    def control(self) -> PipelineControl: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals of a pipeline at one moment."""

    at: float  # on the monotonic clock
    rows: int
    bytes: int = 0
    behind: int | None = None  # rows at the source that were not delivered then


class History:
    """Samples of a service, taken by a thread of its own. One that cannot be taken is left out."""

    def __init__(self, service: Callable[[], _Sampled], now: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._now = now
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Sample]] = {}
        self._edges: dict[tuple[str, str], deque[Sample]] = {}
        self._open_circuits: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; nobody waits for it."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.take()
            except Exception:  # a service that is just starting or ending, or a fault in what describes itself
                _log.debug("no sample of the pipelines could be taken", exc_info=True)
            self._stop.wait(_EVERY_S)

    def take(self) -> None:
        """Take one sample of everything."""
        service = self._service()
        reports = service.reports()
        edges, open_circuits = _edges(reports, service.control())
        now = self._now()
        with self._lock:
            for report in reports:
                self._add(report, now)
            for edge, rows in edges.items():
                self._edges.setdefault(edge, deque(maxlen=4)).append(Sample(now, rows))
            self._open_circuits = open_circuits
            names = {report.pipeline for report in reports}
            self._lines = {name: line for name, line in self._lines.items() if name in names}
            self._edges = {edge: samples for edge, samples in self._edges.items() if edge[0] in names}

    def _add(self, report: Report, now: float) -> None:
        line = self._lines.setdefault(report.pipeline, deque(maxlen=int(KEPT_S / _EVERY_S) + 1))
        line.append(Sample(now, report.rows_total, report.bytes_total, report.lag_rows))

    def rates(self, pipeline: str) -> list[tuple[float, float]]:
        """Seconds ago and rows a second since the sample before, oldest first."""
        samples, now = self._samples(pipeline), self._now()
        return [
            (now - later.at, max(0.0, (later.rows - sooner.rows) / max(later.at - sooner.at, 0.001)))
            for sooner, later in pairwise(samples)
        ]

    def bytes_per_second(self, pipeline: str) -> float:
        """Payload bytes a second over the last samples."""
        recent = _recent(self._samples(pipeline))
        return _slope([(each.at, each.bytes) for each in recent])

    def edge_rate(self, pipeline: str, destination: str) -> float | None:
        """Rows a second from a pipeline to one of its destinations; None if that is not counted apart."""
        with self._lock:
            found = list(self._edges.get((pipeline, destination), ()))
        return _slope([(each.at, each.rows) for each in _recent(found)]) if len(found) > 1 else None

    def open_circuits(self, pipeline: str, destination: str) -> int:
        """Topics of a destination that a routed pipeline leaves alone for a while."""
        with self._lock:
            return self._open_circuits.get((pipeline, destination), 0)

    def behind_s(self, pipeline: str) -> float | None:
        """How old the oldest row is that is not delivered, as far as rows that were counted tell; None if they do not.

        It is no older than the last sample that had caught up, or than the one by which all that was there then has
        been delivered by now. While rows come in, what waits is also as old as so many take to come.
        """
        samples = self._samples(pipeline)
        if not samples or samples[-1].behind is None:
            return None
        last = samples[-1]
        if not last.behind:
            return 0.0
        reached = [each.at for each in samples if not each.behind or each.rows + each.behind <= last.rows]
        bound_s = self._now() - (reached[-1] if reached else samples[0].at)
        coming = _slope([(each.at, each.rows + (each.behind or 0)) for each in _recent(samples)])
        return min(bound_s, last.behind / coming) if coming else bound_s

    def _samples(self, pipeline: str) -> list[Sample]:
        with self._lock:
            return list(self._lines.get(pipeline, ()))


def _recent(samples: Sequence[Sample]) -> list[Sample]:
    return [each for each in samples if each.at >= samples[-1].at - _SPAN_S] if samples else []


def _slope(points: Sequence[tuple[float, int]]) -> float:
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return 0.0
    return max(0.0, (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def _edges(
    reports: Sequence[Report], control: PipelineControl
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Rows and open circuits of routed pipelines by destination: there, not every row goes everywhere."""
    rows: Counter[tuple[str, str]] = Counter()
    open_circuits: Counter[tuple[str, str]] = Counter()
    for report in reports:
        if report.routing:
            for each in control.destinations(report.pipeline):
                edge = (report.pipeline, each["destination"])
                rows[edge] += each["rows_total"]
                open_circuits[edge] += each.get("circuit", "closed") != "closed"
    return dict(rows), dict(open_circuits)
