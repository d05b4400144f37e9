"""The `log` source of a pipeline."""

from __future__ import annotations

from typing import Any

from headgate.sources.base import Lag, Offset
from headgate.sources.kafka.options import BATCHES
from headgate.sources.kafka.source import topics_lag, topics_reached
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.log.tables import LogTables
from headgate.sources.polled import PolledSource

__all__ = ["LogSource"]


class LogSource(PolledSource):
    """Messages of topics, which stay as long as the topics keep them."""

    format = "pglog"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        super().__init__(name, options, origin)
        self._options = LogSourceOptions.from_spark(options)
        self.has_envelope = self._options.unit == BATCHES

    def commit(self, end: Offset) -> None:
        """Nothing is taken away."""

    def check(self) -> str:
        return f"{len(LogTables(self._options).bounds())} partitions"

    def lag(self, end: Offset | None) -> Lag:
        return topics_lag(end, LogTables(self._options).bounds(), self._options.starting_offsets)

    def reached(self, end: Offset) -> dict[str, Any]:
        return topics_reached(end)

    def describe(self) -> dict[str, Any]:
        return {"topics": self._options.subscribe or self._options.subscribe_pattern}
