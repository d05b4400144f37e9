"""Options of the `pglog` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from headgate.model import UsageError
from headgate.sources.kafka.options import check_topics, check_unit
from headgate.sources.options import parse_options

__all__ = ["LogSourceOptions"]

_WHERE = 'format("pglog")'


@dataclass(frozen=True, slots=True)
class LogSourceOptions:
    """What `spark.readStream.format("pglog").option(...)` accepts."""

    url: str = field(repr=False)
    subscribe: str = ""  # topics, separated by commas
    subscribe_pattern: str = ""  # or a regular expression that topics match as a whole
    starting_offsets: str = "earliest"  # or latest, or {"topic": {"0": 23}}
    max_offsets_per_trigger: int = 100_000
    min_partitions: int = 0  # more tasks than there are partitions, if that many are wanted
    poll_interval_ms: int = 100  # milliseconds between two looks at topics that had nothing new
    unit: str = "messages"  # or batches: a row is one stored batch, whole
    fail_on_data_loss: bool = True  # whether messages that are gone before they were read stop the stream

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="pglog")
        check_topics(parsed.subscribe, parsed.subscribe_pattern, _WHERE)
        check_unit(parsed.unit, parsed.min_partitions, _WHERE)
        if not parsed.max_offsets_per_trigger:
            raise UsageError("a batch needs a message", where=_WHERE, remedy="let maxOffsetsPerTrigger be 1 at least")
        return parsed
