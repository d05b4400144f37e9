"""The `postgres-poll` source of a pipeline."""

from __future__ import annotations

from typing import Any

from headgate.model import ConfigError
from headgate.sources.base import DESTRUCTIVE_POLLING, POLLING, Lag, Mode, Offset
from headgate.sources.polled import PolledSource
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import Point
from headgate.sources.postgres_poll.poller import Poller

__all__ = ["PostgresPollSource"]


class PostgresPollSource(PolledSource):
    """The rows of a table; delivered ones may be deleted or marked."""

    format = "pgpoll"

    def __init__(self, name: str, options: dict[str, str], origin: str, destructive: bool | None = None) -> None:
        super().__init__(name, options, origin)
        self._options = PollOptions.from_spark(options)
        self._destructive = self._options.is_destructive if destructive is None else destructive
        self._poller = Poller(self._options)
        if self._options.is_destructive and not self._destructive:
            what = "delete_after_read" if self._options.delete_after_read else "processed_column"
            raise ConfigError(
                f"destructive = false, but {what} takes rows away",
                where=f"sources.{name}",
                remedy=f"remove {what}, or set destructive = true",
            )

    def mode(self) -> Mode:
        return DESTRUCTIVE_POLLING if self._destructive else POLLING

    def commit(self, end: Offset) -> None:
        """Only here, and when the reader goes on from `end`, are rows taken away."""
        self._poller.commit(Point.from_offset(end))

    def check(self) -> str:
        self._poller.check()
        return f"table {self._poller.table.where}, by {self._poller.table.tracking.name}"

    def lag(self, end: Offset | None) -> Lag:
        return self._poller.lag(Point.from_offset(end) if end else None)

    def reached(self, end: Offset) -> dict[str, Any]:
        place = Point.from_offset(end).after
        return {} if place is None else {self._options.tracking_column: place.tracking, "key": list(place.key)}

    def describe(self) -> dict[str, Any]:
        future = self._poller.book.future()
        return {
            "table": self._options.table,
            "rows_changed_before_commit_total": self._poller.rows_kept,
            "rows_in_future": future.rows,
            "last_in_future": future.last or None,
            "cursor_is_ahead": future.cursor_is_ahead,
        }
