"""Where a pipeline stands. One vocabulary for the CLI, HTTP, metrics and logs."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.StrEnum):
    """The states of a pipeline, in the order in which it passes through them."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"  # failing, and being retried
    PAUSED = "paused"  # somebody asked for it
    STOPPING = "stopping"
    STOPPED = "stopped"
    ERROR = "error"  # failed, and waiting for somebody to act

    @property
    def ended(self) -> bool:
        return self in (Status.STOPPED, Status.ERROR)
