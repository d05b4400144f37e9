"""The `eventlog` destination: rows of a pipeline appended to a log in files.

A log has one writer at a time. The tasks of a batch take turns: each locks the directory for as long as it appends what
it has gathered. So the tasks must run on the machine that has the directory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.checking import check_directory, check_one_task
from headgate.destinations.eventlog.sender import EventLogSender
from headgate.eventlog import LogOptions, LogReader, LogWriter
from headgate.model import OccupiedError

__all__ = ["EventLogDestination"]

_TURN_S = 30.0
_LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class EventLogDestination(Destination):
    """`exclusive`: rows come in one order, from one writer, so that a replay begins behind what is there."""

    name: str
    path: str
    topic: str = "{stream}.{topic}"
    options: LogOptions = field(default_factory=LogOptions)
    exclusive: bool = False

    def ensure(self) -> None:
        """Make the log, or mend its tail."""
        with self.writer():
            pass

    def check(self) -> str:
        return check_directory(self.path)

    def topic_name(self, stream: str | None, topic: str) -> str:
        """The topic of an event for a row's topic in a stream."""
        return self.topic.format(stream=stream, topic=topic) if stream else topic

    @property
    def takes_shares(self) -> bool:
        return not self.exclusive  # then consumers recognise a replay

    def details(self) -> dict[str, Any]:
        with LogReader(Path(self.path)) as reader:
            return {
                "path": self.path,
                "exclusive": self.exclusive,
                "oldest": reader.oldest_seq,
                "last": reader.head_seq,
            }

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        if self.exclusive:
            check_one_task(lane)
        yield EventLogSender(self, lane, is_ordered=self.exclusive and not lane.is_late)

    @contextmanager
    def writer(self) -> Iterator[LogWriter]:
        """The writer, when it is this task's turn."""
        patience = time.monotonic() + _TURN_S
        while True:
            try:
                writer = LogWriter(Path(self.path), self.options)
                break
            except OccupiedError:
                if time.monotonic() > patience:
                    raise
                time.sleep(_LOOK_S)
        with writer:
            yield writer
