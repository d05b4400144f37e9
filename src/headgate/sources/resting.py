"""How often a source that had nothing new is asked: an idle Spark query asks many times a second."""

from __future__ import annotations

import time

__all__ = ["Resting"]


class Resting:
    """Says whether to answer "nothing new" without a look, since the last look found nothing and was just now."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._quiet_since: float | None = None
        self._never = False

    def __bool__(self) -> bool:
        if self._quiet_since is None or self._never:
            return False
        return time.monotonic() - self._quiet_since < self._interval_s

    def looked(self, *, found: bool) -> None:
        """Note what a look at the source came to."""
        self._quiet_since = None if found else time.monotonic()

    def never(self) -> None:
        """Look whenever asked, from now on: a run that ends with what is there must not wait."""
        self._never = True
