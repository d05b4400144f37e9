"""The circuit breaker of one destination: after so many failures in a row it is left alone for a while.

    closed -- failures in a row --> open -- cool-down --> half-open: one batch may try
      ^                              ^                          |
      +------- it succeeded ---------|------ it failed ---------+

A lost connection is no failure of a destination, and is never told to its breaker.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Breaker", "BreakerState"]


class BreakerState(enum.StrEnum):
    """Whether a destination is tried."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Breaker:
    """Told of every outcome, asked before every batch. Not for several threads."""

    threshold: int = 5
    cool_down_s: float = 30.0
    clock: Callable[[], float] = time.monotonic
    failures: int = 0  # in a row
    _opened_at: float | None = field(default=None, init=False)

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.clock() < self._opened_at + self.cool_down_s else BreakerState.HALF_OPEN

    @property
    def closes_in_s(self) -> float:
        """How long until it may be tried again; 0 if it may be now."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self.cool_down_s - self.clock())

    def succeeded(self) -> None:
        self.failures = 0
        self._opened_at = None

    def failed(self) -> None:
        """One more failure. In the half-open state a single one opens it again, for the whole time."""
        self.failures += 1
        if self.failures >= self.threshold or self._opened_at is not None:
            self._opened_at = self.clock()
