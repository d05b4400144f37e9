"""Operating system processes: who they are, which of them work in a directory, how they are ended."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from headgate.model.errors import OccupiedError

__all__ = ["Ladder", "ProcessIdentity", "end", "ended", "processes_in"]

logger = logging.getLogger(__name__)

Ladder = Sequence[tuple[signal.Signals, float]]
"""Signals to send in turn, each with the seconds to wait for the end before the next one."""

# The kernel counts start times from boot; a small clock step moves what psutil makes of them.
_START_TOLERANCE_S = 2.0
_SLICE_S = 0.05


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process by pid and start time, because the pid alone may belong to a stranger by now."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The identity of a running process."""
        return cls(pid, psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        """The process if it still runs, else None."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) <= _START_TOLERANCE_S
            return process if same and not _is_dead(process) else None
        except psutil.NoSuchProcess:
            return None


def processes_in(directory: Path, programs: Collection[str]) -> list[psutil.Process]:
    """Processes of the named programs whose working directory is `directory`, whoever started them."""
    place = str(directory.resolve())
    return [
        process
        for process in psutil.process_iter(["cwd", "name"])
        if process.info["cwd"] == place and process.info["name"] in programs
    ]


def ended(process: psutil.Process, patience_s: float) -> bool:
    """Wait for the end of a process, ours or not.

    A process that is not our child may stay a zombie for long: in a container often nobody collects them.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            process.wait(min(_SLICE_S, patience_s))
        except psutil.TimeoutExpired:
            if _is_dead(process):
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(_SLICE_S)  # our own child died just now: collect it
                return True
            if time.monotonic() >= deadline:
                return False
        else:
            return True


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def end(process: psutil.Process, ladder: Ladder) -> None:
    """End a process by the first signal of the ladder that it obeys."""
    for number, patience_s in ladder:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if ended(process, patience_s):
            return
        logger.warning("process %d still runs %.0f s after %s", process.pid, patience_s, number.name)
    raise OccupiedError(
        f"process {process.pid} does not end, not even killed",
        remedy="It waits for the kernel, most likely for a disk or network file system: look at `dmesg`.",
    )
