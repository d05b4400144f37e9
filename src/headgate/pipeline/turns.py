"""Pipelines start one after another: a start keeps a small machine busy, and Spark gives workers only seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["StartTurns"]

_POLL_S = 0.05


class StartTurns:
    """At most so many starts at a time, one for every two cores; but none waits long for another that is stuck."""

    def __init__(self, at_once: int | None = None, patience_s: float = 20.0) -> None:
        self._free = threading.Semaphore(at_once or max(1, (os.cpu_count() or 1) // 2))
        self._patience_s = patience_s

    @contextmanager
    def take(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Wait for a turn, run the block, and keep the turn until `is_over()`, for as long as others are patient."""
        is_ours = self._free.acquire(timeout=self._patience_s)
        deadline = time.monotonic() + self._patience_s
        try:
            yield
            while is_ours and not is_over() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        finally:
            if is_ours:
                self._free.release()
