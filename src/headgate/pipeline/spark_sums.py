"""What Spark has reported of the queries of a pipeline, summed up for reports and metrics."""

from __future__ import annotations

import threading
from typing import Any

from headgate.runtime.timings import Timings

__all__ = ["OUTCOMES", "PARTS", "SparkSums"]

PARTS = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
_AS_LONG_AS_THEY_LIKE = ("addBatch", "triggerExecution")  # of batches that follow their source
OUTCOMES = ("stopped", "failed")
_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class SparkSums:
    """What Spark has reported of the queries of one pipeline, summed up. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        self._input_rate: float | None = None
        self._processed_rate: float | None = None
        self._parts = {part: Timings(_BUCKETS_S) for part in PARTS}
        self._ends = dict.fromkeys(OUTCOMES, 0)

    def add(self, report: dict[str, Any], *, follows: bool = False) -> None:
        """Count the report of a batch. `follows`: it lasted until its turn was over, whatever it had to do."""
        durations = report.get("durationMs") or {}
        with self._lock:
            self._rows += int(report.get("numInputRows") or 0)
            self._input_rate = report.get("inputRowsPerSecond")
            self._processed_rate = report.get("processedRowsPerSecond")
            for part, timings in self._parts.items():
                if part in durations and not (follows and part in _AS_LONG_AS_THEY_LIKE):
                    timings.observe(durations[part] / 1000)

    def ended(self, outcome: str) -> None:
        """Count the end of a query, which is one of `OUTCOMES`."""
        with self._lock:
            self._ends[outcome] += 1

    def as_dict(self) -> dict[str, Any]:
        with self._lock:
            return {
                "input_rows_total": self._rows,
                "input_rows_per_second": self._input_rate,
                "processed_rows_per_second": self._processed_rate,
                "parts": {part: timings.as_dict() for part, timings in self._parts.items()},
                "terminations": dict(self._ends),
            }
