"""How long to wait before the next attempt: doubled each time, up to a limit, and less by chance.

The chance keeps those who failed together from coming back together.
"""

from __future__ import annotations

import random

__all__ = ["Backoff", "backoff_s"]


def backoff_s(failures: int, bounds: tuple[float, float], chance: float) -> float:
    """Seconds to wait after so many failures in a row: doubled each time, and up to half of it off by chance."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(failures - 1, 60)) * (1 - chance / 2)


class Backoff:
    """Counts failures in a row. `longest_s` bounds every pause; the first one is at most `first_s`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._bounds = first_s, longest_s
        self.failures = 0

    def next_s(self) -> float:
        """Count one more failure; returns how long to wait after it."""
        self.failures += 1
        return backoff_s(self.failures, self._bounds, random.random())

    def reset(self) -> None:
        """Forget the failures: the next pause is the first one again."""
        self.failures = 0
