"""Child processes, one protocol: options come on standard input, what a child has to say leaves on standard output.

Both are JSON, one object per line: in go the options; out come `{"ready": ...}` or `{"error": ...}`, `{"log": ...}`,
and `{"metrics": ...}` every second. A child ends when its standard input is closed, so it cannot outlive whoever
started it.

Two kinds of children say other things: the reader of a spool speaks by a file, since processes that did not start it
must know its state, and the relay's validators answer batches in MessagePack, thousands in a second. They are started
and ended like the others.

The parent's side: `start_child`, `await_ready`, `end_child`, and `start_async_child` and `end_async_child` for those
who talk with a child from an event loop. The child's: `run_child`, `ready`, `until_closed`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import msgspec

from headgate.model.errors import HeadgateError, InternalError
from headgate.runtime.worker_log import own_fields

__all__ = [
    "await_ready",
    "end_async_child",
    "end_child",
    "log_told",
    "options_line",
    "ready",
    "run_child",
    "say",
    "start_async_child",
    "start_child",
    "until_closed",
]

_METRICS_S = 1.0


def start_child(
    module: str, options: object, *, stdout: IO[bytes] | int = subprocess.PIPE, stderr: IO[bytes] | int | None = None
) -> subprocess.Popen[bytes]:
    """Start `python -m module`, in a session of its own, since Ctrl-C in a terminal is not for it; tell its options."""
    child = subprocess.Popen(
        _command(module), stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it ended at once; what it said is on its way
        child.stdin.write(options_line(options))
        child.stdin.flush()
    return child


async def start_async_child(module: str, options: object) -> asyncio.subprocess.Process:
    """Start `python -m module` as `start_child` does, with its output in this event loop."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*_command(module), stdin=pipe, stdout=pipe, start_new_session=True)
    assert child.stdin is not None
    child.stdin.write(options_line(options))
    return child


def _command(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def options_line(options: object) -> bytes:
    """A dataclass as the line that a child reads first."""
    return msgspec.json.encode(options, enc_hook=str) + b"\n"


def await_ready(child: subprocess.Popen[bytes], what: str) -> dict[str, Any]:
    """What a child says when it is ready. Raises what keeps it from that."""
    assert child.stdout is not None
    for line in child.stdout:
        told = json.loads(line)
        if (facts := told.get("ready")) is not None:
            return dict(facts)
        if error := told.get("error"):
            raise HeadgateError.from_dict(error)
        log_told(told)
    raise InternalError(f"{what} ended at once", remedy="try again")


def log_told(told: dict[str, Any]) -> None:
    """Log here what a child has logged; nothing, if the line says something else."""
    if log := told.get("log"):
        logging.getLogger(log["name"]).log(log["level"], "%s", log["text"], extra=log["extra"])


def end_child(child: subprocess.Popen[bytes], within_s: float) -> None:
    """Close its input, and wait until it has ended; one that takes too long is killed."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


async def end_async_child(child: asyncio.subprocess.Process, within_s: float) -> None:
    """Close its input, and wait until it has ended; one that takes too long is killed."""
    assert child.stdin is not None
    child.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await child.wait()
    if child.returncode is None:
        child.kill()
        await child.wait()


def run_child(work: Callable[[bytes], None]) -> None:
    """Do the work, which gets the options, with logs and an error told to the parent."""
    logging.basicConfig(handlers=[_LogLines()], level=logging.INFO)
    try:
        work(sys.stdin.buffer.readline())
    except HeadgateError as error:
        say(error=error.as_dict())
        sys.exit(error.exit_code)


def ready(metrics: Callable[[], dict[str, Any]], **facts: Any) -> None:
    """Say that it serves, and from now on what it has counted. The event loop must run."""
    say(ready={**facts, "pid": os.getpid()})
    loop = asyncio.get_running_loop()

    def tell() -> None:
        say(metrics=metrics())
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


def say(**line: Any) -> None:
    """Tell the parent a line."""
    # One write per line: the log's threads speak, too.
    os.write(sys.stdout.fileno(), json.dumps(line, default=str).encode() + b"\n")


class _LogLines(logging.Handler):
    """Log records as lines for the parent, which writes them in its own form."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        say(log={"name": record.name, "level": record.levelno, "text": text, "extra": own_fields(record)})
