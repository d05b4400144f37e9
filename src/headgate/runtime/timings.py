"""Latency histograms that servers keep of themselves, in buckets as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

__all__ = ["Timings"]

_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Timings:
    """A histogram. `observe` costs a fraction of a microsecond; the bounds are fixed when it is made."""

    def __init__(self, bounds: Sequence[float] = _BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts, as Prometheus wants them: how many took no longer than each bound."""
        reached, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            reached += count
            found.append((bound, float(reached)))
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return bounds, counts between them (not cumulative) and the sum, for a process that tells them to another."""
        return {"limits": list(self._bounds), "counts": list(self._counts), "sum": self.total_s}
