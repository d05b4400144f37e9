"""Where frames wait to be read: the spool that a subscription fills, or the event log of a relay. Events are numbered
in both, and what is durable under a number stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from headgate.eventlog.reader import LogReader
from headgate.model import StateError
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.spool.marks import Marks
from headgate.spool.segments import first_row, read_requests
from headgate.wire.atproto.logged import frame_of

__all__ = ["LogPlace", "Place", "SpoolPlace", "open_place"]


class Place(Protocol):
    """Numbered frames. Picklable: executors read from it."""

    def first(self) -> int:
        """The number of the oldest that is there and not delivered."""

    def end(self) -> int | None:
        """The number that the next one will have; None if nobody has written yet."""

    def edges(self, start: int, end: int) -> list[int]:
        """Where files begin inside a range."""

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The frames of a range: `start` inclusive, `end` exclusive."""

    def delivered(self) -> int:
        """Everything before this number is delivered, and may be gone."""

    def deliver(self, number: int) -> None:
        """Everything before this number is delivered."""


def open_place(options: AtprotoSourceOptions) -> Place:
    return LogPlace(options) if options.path else SpoolPlace(options.directory)


class SpoolPlace:
    """The spool of the webhook source, with groups of frames in place of requests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._marks = Marks(directory)

    def first(self) -> int:
        return max(self._marks.delivered(), first_row(self._directory) or 0)

    def end(self) -> int | None:
        return self._marks.read_tail()

    def edges(self, start: int, end: int) -> list[int]:
        return []

    def read(self, start: int, end: int) -> Iterator[bytes]:
        for first, group in read_requests(self._directory, start, end):
            yield from group.bodies[max(start - first, 0) : end - first]

    def delivered(self) -> int:
        return self._marks.delivered()

    def deliver(self, number: int) -> None:
        self._marks.deliver(number)


class LogPlace:
    """The event log of a relay, on the disk of whoever reads it. Nobody tells the relay what is delivered."""

    def __init__(self, options: AtprotoSourceOptions) -> None:
        self._options = options

    def first(self) -> int:
        with LogReader(self._options.directory) as log:
            return log.oldest_seq

    def end(self) -> int | None:
        with LogReader(self._options.directory) as log:
            return log.head_seq + 1

    def edges(self, start: int, end: int) -> list[int]:
        with LogReader(self._options.directory) as log:
            return [number for number in log.files.starts() if start < number < end]

    def read(self, start: int, end: int) -> Iterator[bytes]:
        with LogReader(self._options.directory) as log, log.cursor(start - 1) as cursor:
            while records := cursor.read(until=end - 1):
                if cursor.has_skipped and self._options.fail_on_data_loss:
                    raise _lost(self._options.directory, start)
                yield from (frame_of(record.payload) for record in records)

    def delivered(self) -> int:
        return 0

    def deliver(self, number: int) -> None:
        """The relay keeps events as long as it is told to."""


def _lost(directory: Path, start: int) -> StateError:
    return StateError(
        f"events from {start} on are gone before they were read",
        where=str(directory),
        remedy="let the relay keep events for longer; to go on with what is there, set fail_on_data_loss to false",
    )
