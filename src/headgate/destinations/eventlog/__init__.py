"""The `eventlog` destination: rows as events of a log in files."""

from __future__ import annotations

from headgate.destinations.eventlog.destination import EventLogDestination

__all__ = ["EventLogDestination"]
