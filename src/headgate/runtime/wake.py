"""A bell between two processes on one machine: a named pipe, of which only that something came matters.

Whoever waits sleeps in the kernel until the other one rings, so that neither latency nor idle time costs anything. A
ring is a hint: the state it tells of is elsewhere, and is looked at again after each wait.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Bell", "Listener", "ring"]

_DRAIN_BYTES = 1 << 16


class Bell:
    """The end that rings. It makes the pipe, and never blocks: a full pipe has been rung often enough."""

    def __init__(self, path: Path) -> None:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for both: with a reader's end of our own there is no error while nobody listens.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._descriptor, b"\0")

    def close(self) -> None:
        os.close(self._descriptor)


def ring(path: Path) -> None:
    """Ring once a bell that somebody else has made; without effect while nobody has it open."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return
        raise
    try:
        with suppress(BlockingIOError):
            os.write(descriptor, b"\0")
    finally:
        os.close(descriptor)


class Listener:
    """The end that waits. It needs the other one to be there: see `wait`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until somebody rings, or the time is up; False once there is nobody left who could ring."""
        events = self._poll.poll(timeout_s * 1000)
        if any(mask & select.POLLIN for _, mask in events):
            with suppress(BlockingIOError):
                os.read(self._descriptor, _DRAIN_BYTES)
            return True
        return not events

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
