"""Creates destinations side by side before the first row, within a deadline. What hangs holds nobody up."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

from headgate.model import HeadgateError

__all__ = ["prewarm"]

_log = logging.getLogger(__name__)

_THREADS = 8

Job = Callable[[], HeadgateError | None]


def prewarm(jobs: Mapping[str, Job], deadline_s: float) -> None:
    """Run jobs, each named for people. What fails or is late is told, and comes with its first row."""
    todo: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
    for item in jobs.items():
        todo.put(item)
    for _ in range(min(_THREADS, len(jobs))):
        # Not a pool: the end of the process would wait for its threads.
        threading.Thread(target=_work, args=(todo, done), name="prewarm", daemon=True).start()
    waiting = set(jobs)
    deadline = time.monotonic() + deadline_s
    while waiting:
        try:
            name, error = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        waiting.discard(name)
        if error is not None:
            _log.warning("prewarm failed", extra={"destination": name, "error": str(error)})
    for name in sorted(waiting):
        _log.warning("prewarm is late", extra={"destination": name, "deadline_s": deadline_s})


def _work(todo: queue.SimpleQueue[tuple[str, Job]], done: queue.SimpleQueue[tuple[str, BaseException | None]]) -> None:
    while True:
        try:
            name, job = todo.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((name, job()))
        except Exception as error:
            done.put((name, error))
