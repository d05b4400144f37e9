"""An append-only log of events in files, durable before anyone sees it, with many doors for those who read."""

from __future__ import annotations

from headgate.eventlog.log import EventLog
from headgate.eventlog.reader import LogCursor, LogReader
from headgate.eventlog.records import Record
from headgate.eventlog.tail import Tail, follow
from headgate.eventlog.writer import Entry, LogOptions, LogWriter

__all__ = ["Entry", "EventLog", "LogCursor", "LogOptions", "LogReader", "LogWriter", "Record", "Tail", "follow"]
