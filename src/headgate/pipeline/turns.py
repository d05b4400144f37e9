"""Pipelines start one after another: a start keeps a small machine busy, and Spark gives workers only seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

__all__ = ["StartTurns", "Turn"]

_POLL_S = 0.05


class StartTurns:
    """At most so many starts at a time, one for every two cores; but none waits long for another that is stuck."""

    def __init__(self, at_once: int | None = None, patience_s: float = 20.0) -> None:
        self._free = threading.Semaphore(at_once or max(1, (os.cpu_count() or 1) // 2))
        self._patience_s = patience_s

    def take(self, interrupted: Callable[[], bool]) -> Turn:
        """Wait for a turn, until patience is over or the start is not wanted any more; then it goes on without."""
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline and not interrupted():
            if self._free.acquire(timeout=_POLL_S):
                return Turn(self._free, self._patience_s)
        return Turn(None, 0.0)


class Turn:
    """A start that is under way. It gives way to the next when it is over, or has taken long enough."""

    def __init__(self, free: threading.Semaphore | None, patience_s: float) -> None:
        self._free = free
        self._deadline = time.monotonic() + patience_s

    @property
    def is_over(self) -> bool:
        """Return whether the next one may have started."""
        return self._free is None

    def end_if(self, is_over: Callable[[], bool]) -> None:
        """Let the next one start if this one is over, which is asked only as long as it matters."""
        if self._free is not None and (time.monotonic() > self._deadline or is_over()):
            self.end()

    def end(self) -> None:
        """Let the next one start. Idempotent."""
        if self._free is not None:
            self._free.release()
            self._free = None
