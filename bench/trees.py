"""What a process and all its descendants use."""

from __future__ import annotations

from contextlib import suppress

import psutil

__all__ = ["cpu_seconds", "rss_bytes", "spent_seconds"]


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> dict[psutil.Process, float]:
    """User and system time so far of each process of the tree that lives."""
    found = {}
    for process in _tree(pid):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def spent_seconds(before: dict[psutil.Process, float], after: dict[psutil.Process, float]) -> float:
    """What was used between two looks. One that ended meanwhile counts for nothing: its past must not be subtracted."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())


def rss_bytes(pid: int) -> dict[str, int]:
    """Resident memory by program name. Shared pages count once per process, so the sum is an upper bound."""
    found: dict[str, int] = {}
    for process in _tree(pid):
        with suppress(psutil.Error):
            name = process.name()
            found[name] = found.get(name, 0) + process.memory_info().rss
    return found
