"""The side of a child process: its options come on standard input, what it has to say leaves on standard output.

One JSON object per line: `{"ready": ...}` once, `{"metrics": ...}` every second, `{"log": ...}`, `{"error": ...}`. It
ends when its standard input is closed, so it cannot outlive whoever started it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from headgate.model.errors import HeadgateError
from headgate.runtime.worker_log import own_fields

__all__ = ["ready", "run_child", "until_closed"]

_METRICS_S = 1.0


def run_child(work: Callable[[bytes], None]) -> None:
    """Do the work, which gets the options, with logs and an error told to the parent."""
    logging.basicConfig(handlers=[_LogLines()], level=logging.INFO)
    try:
        work(sys.stdin.buffer.readline())
    except HeadgateError as error:
        _say(error=error.as_dict())
        sys.exit(error.exit_code)


def ready(metrics: Callable[[], dict[str, Any]], **facts: Any) -> None:
    """Say that it serves, and from now on what it has counted. The event loop must run."""
    _say(ready={**facts, "pid": os.getpid()})
    loop = asyncio.get_running_loop()

    def tell() -> None:
        _say(metrics=metrics())
        loop.call_later(_METRICS_S, tell)

    tell()


def until_closed(stop: asyncio.Event) -> None:
    """Set the event when standard input is closed."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, read)


def _say(**line: Any) -> None:
    # One write per line: the log's threads speak, too.
    os.write(sys.stdout.fileno(), json.dumps(line, default=str).encode() + b"\n")


class _LogLines(logging.Handler):
    """Log records as lines for the parent, which writes them in its own form."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        _say(log={"name": record.name, "level": record.levelno, "text": text, "extra": own_fields(record)})
