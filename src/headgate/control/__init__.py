"""The running service and what watches it: HTTP API, metrics, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.control.service import Service

__all__ = ["Service"]


def __getattr__(name: str) -> Any:
    """The service knows pipelines, and with them Spark: whoever only wants the logs does not wait for that."""
    if name != "Service":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.control.service import Service

    return Service
