"""The `kafka` source of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from headgate.sources.base import Lag, Offset
from headgate.sources.kafka.cluster import KafkaTopics
from headgate.sources.kafka.offsets import Bounds, Partition, Reached, parse_start
from headgate.sources.kafka.options import BATCHES, KafkaSourceOptions
from headgate.sources.kafka.whole_cluster import KafkaBatches
from headgate.sources.polled import PolledSource

__all__ = ["KafkaSource", "topics_lag", "topics_reached"]


class KafkaSource(PolledSource):
    """Messages of topics; a group may be told what was delivered, so that its lag can be watched."""

    format = "kafkatopics"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        super().__init__(name, options, origin)
        self._options = KafkaSourceOptions.from_spark(options)
        self._topics = KafkaTopics(self._options)
        self.has_envelope = self._options.unit == BATCHES

    def commit(self, end: Offset) -> None:
        self._topics.commit(Reached.from_offset(end))

    def stop(self) -> None:
        self._topics.close()

    def check(self) -> str:
        try:
            return f"{len(self._bounds())} partitions"
        finally:
            self._topics.close()

    def _bounds(self) -> dict[Partition, Bounds]:
        """By a client of its own: that of `commit` is used by another thread."""
        kind = KafkaBatches if self._options.unit == BATCHES else KafkaTopics
        with closing(kind(self._options)) as topics:
            return topics.bounds()

    def lag(self, end: Offset | None) -> Lag:
        return topics_lag(end, self._bounds(), self._options.starting_offsets)

    def reached(self, end: Offset) -> dict[str, Any]:
        return topics_reached(end)

    def describe(self) -> dict[str, Any]:
        topics = self._options.subscribe or self._options.subscribe_pattern
        return {"topics": topics, "group": self._options.group_id or None}


def topics_reached(end: Offset) -> dict[str, int]:
    """The next offset of every partition."""
    return {str(partition): offset for partition, offset in sorted(Reached.from_offset(end).items())}


def topics_lag(end: Offset | None, bounds: Mapping[Partition, Bounds], starting_offsets: str) -> Lag:
    """Offsets behind a point of a stream, which is how many messages there are unless topics are compacted."""
    start = parse_start(starting_offsets, bounds) if end is None else Reached.from_offset(end)
    begins = {partition: max(start.get(partition, 0), found.earliest) for partition, found in bounds.items()}
    return Lag(rows=sum(max(0, found.latest - begins[partition]) for partition, found in bounds.items()))
