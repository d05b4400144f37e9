"""The `kafka` source of a pipeline."""

from __future__ import annotations

from typing import Any

from headgate.model.plugin import API_VERSION
from headgate.sources.base import POLLING, Mode, Offset, Source
from headgate.sources.kafka.cluster import KafkaTopics
from headgate.sources.kafka.offsets import Reached
from headgate.sources.kafka.options import KafkaSourceOptions

__all__ = ["KafkaSource", "lag_rows"]


class KafkaSource(Source):
    """Messages of topics; a group may be told what was delivered, so that its lag can be watched."""

    api_version = API_VERSION
    format = "kafkatopics"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        self.name = name
        self._texts = options
        self._options = KafkaSourceOptions.from_spark(options)
        self._topics = KafkaTopics(self._options)
        self._origin = origin

    def mode(self) -> Mode:
        return POLLING

    def options(self) -> dict[str, str]:
        return self._texts

    def commit(self, end: Offset) -> None:
        self._topics.commit(Reached.from_offset(end))

    def stop(self) -> None:
        self._topics.close()

    def origin(self) -> str:
        return self._origin

    def check(self) -> str:
        try:
            return f"{len(self._topics.bounds())} partitions"
        finally:
            self._topics.close()

    def lag_rows(self, end: Offset, latest: Offset) -> int | None:
        return lag_rows(end, latest)

    def describe(self) -> dict[str, Any]:
        topics = self._options.subscribe or self._options.subscribe_pattern
        return {"topics": topics, "group": self._options.group_id or None}


def lag_rows(end: Offset, latest: Offset) -> int:
    """Offsets between two points of a stream, which is how many messages there are unless topics are compacted."""
    begin, there = Reached.from_offset(end), Reached.from_offset(latest)
    return sum(max(0, offset - begin.get(partition, 0)) for partition, offset in there.items())
