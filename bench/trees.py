"""What a process and all its descendants use."""

from __future__ import annotations

from contextlib import suppress

import psutil

__all__ = ["cpu_seconds", "rss_bytes"]


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree so far."""
    total = 0.0
    for process in _tree(pid):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def rss_bytes(pid: int) -> dict[str, int]:
    """Resident memory by program name. Shared pages count once per process, so the sum is an upper bound."""
    found: dict[str, int] = {}
    for process in _tree(pid):
        with suppress(psutil.Error):
            name = process.name()
            found[name] = found.get(name, 0) + process.memory_info().rss
    return found
