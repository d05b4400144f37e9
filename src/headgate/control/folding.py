"""Folds log lines that repeat: one when it begins, one a minute with the count, one when it has ended.

A server that is away for a night makes every loop say so each time it tries. Two lines are the same if nothing but
numbers differs in their fields: the attempt, the batch, seconds.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["FoldingFilter"]

_REMIND_EVERY_S = 60.0
_ENDED_AFTER_S = 45.0  # more than the longest pause between two attempts of whatever is tried again
_MOST_LINES = 1000
_PERIODIC = frozenset({"METRICS"})  # lines that are meant to come again and again
_KEPT = frozenset({"headgate.audit"})  # a logger of which every line counts; it has limits of its own
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(slots=True)
class _Line:
    record: logging.LogRecord
    shown_at: float
    seen_at: float
    hidden_count: int = 0


class FoldingFilter(logging.Filter):
    """Lets the first of equal records pass and counts the others. The handler gets the line that tells of an end.

    A filter that raises does so out of the call that logs, where nobody expects it: a record that cannot be compared is
    let through, and the handler says what is wrong with it.
    """

    def __init__(self, handler: logging.Handler, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._handler = handler
        self._now = now
        self._lines: dict[object, _Line] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            now = self._now()
            ended = self._ended(now)
            try:
                shown = self._shown(record, now)
            except Exception:  # its arguments do not fit its text, or a field cannot be written down
                shown = True
        for line in ended:
            self._tell_end(line)
        return shown

    def _tell_end(self, line: _Line) -> None:
        told = copy.copy(line.record)
        told.repeated, told.repeats = line.hidden_count, "ended"
        self._handler.acquire()
        try:
            self._handler.emit(told)
        except Exception:
            self._handler.handleError(told)
        finally:
            self._handler.release()

    def _shown(self, record: logging.LogRecord, now: float) -> bool:
        if record.msg in _PERIODIC or record.name in _KEPT:
            return True
        key = _key(record)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) < _MOST_LINES:
                self._lines[key] = _Line(record, now, now)
            return True
        line.seen_at = now
        line.hidden_count += 1
        if now - line.shown_at < _REMIND_EVERY_S:
            return False
        record.repeated = line.hidden_count
        line.hidden_count, line.shown_at = 0, now
        return True

    def _ended(self, now: float) -> list[_Line]:
        """Forget lines that did not come again; returns those of which something is left to tell."""
        gone = [key for key, line in self._lines.items() if now - line.seen_at >= _ENDED_AFTER_S]
        return [line for line in map(self._lines.pop, gone) if line.hidden_count]


def _key(record: logging.LogRecord) -> object:
    fields = {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
    return record.name, record.levelno, record.getMessage(), _words(fields)


def _words(value: Any) -> object:
    """A value without its numbers, as something that can be a key."""
    if isinstance(value, dict):
        return tuple((str(key), _words(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_words, value))
    return None if isinstance(value, int | float) else str(value)
