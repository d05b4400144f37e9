"""The `eventlog` destination: rows as events of a log in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.eventlog.destination import EventLogDestination
else:
    __getattr__ = lazily(__name__, EventLogDestination="destination")

__all__ = ["EventLogDestination"]
