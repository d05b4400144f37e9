"""The Spark streaming source `kafkatopics`: `spark.readStream.format("kafkatopics")`.

It needs no connector in Java. What it does of a log of topics, `pglog` does as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.model import StateError
from headgate.sources.kafka.cluster import KafkaTopics
from headgate.sources.kafka.offsets import Bounds, Partition, Range, Reached, lost, next_end, parse_start, ranges
from headgate.sources.kafka.options import BATCHES, KafkaSourceOptions
from headgate.sources.kafka.rows import SCHEMA
from headgate.sources.kafka.whole import BATCH_SCHEMA
from headgate.sources.kafka.whole_cluster import KafkaBatches
from headgate.sources.resting import Resting

__all__ = ["KafkaTopicsDataSource", "Reading", "Topics", "TopicsStreamReader", "WholeBatchesReader"]

_log = logging.getLogger(__name__)
Offset = dict[str, Any]


class Topics(Protocol):
    """A log of topics. Picklable; it connects when it is asked."""

    def bounds(self) -> dict[Partition, Bounds]: ...
    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]: ...
    def close(self) -> None: ...


class Reading(Protocol):
    """What both sources let their users say about the reading."""

    @property
    def starting_offsets(self) -> str: ...
    @property
    def max_offsets_per_trigger(self) -> int: ...
    @property
    def min_partitions(self) -> int: ...
    @property
    def poll_interval_ms(self) -> int: ...
    @property
    def fail_on_data_loss(self) -> bool: ...


class KafkaTopicsDataSource(DataSource):
    """The messages of topics of a Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return "kafkatopics"

    def schema(self) -> str:
        options = KafkaSourceOptions.from_spark(self.options)  # a mistake is found before the query starts
        return BATCH_SCHEMA if options.unit == BATCHES else SCHEMA

    def streamReader(self, schema: StructType) -> TopicsStreamReader:
        options = KafkaSourceOptions.from_spark(self.options)
        if options.unit == BATCHES:
            return WholeBatchesReader(KafkaBatches(options), options)
        return TopicsStreamReader(KafkaTopics(options), options)


@dataclass
class Messages(InputPartition):
    """What one task reads."""

    range: Range


class TopicsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges on the driver's machine, and reads them on the executors."""

    def __init__(self, topics: Topics, reading: Reading) -> None:
        self._topics = topics
        self._reading = reading
        self._resting = Resting(reading.poll_interval_ms)
        self._until: dict[Partition, Bounds] | None = None  # where a run that ends, ends

    def initialOffset(self) -> Offset:
        return parse_start(self._reading.starting_offsets, self._topics.bounds()).to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reading.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        if self._resting:
            return start
        begin = Reached.from_offset(start)
        bounds = self._until if self._until is not None else self._topics.bounds()
        self._check(lost(begin, bounds))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._reading.max_offsets_per_trigger
        end = next_end(begin, bounds, None if isinstance(limit, ReadAllAvailable) else most)
        self._resting.looked(found=end != begin)
        return start if end == begin else end.to_offset()

    def _check(self, missing: list[str]) -> None:
        if missing and self._reading.fail_on_data_loss:
            raise StateError(
                f"messages are gone before they were read: {'; '.join(missing[:5])}",
                remedy="keep messages for longer; to go on with what is there, set failOnDataLoss to false",
            )
        for each in missing:
            _log.warning("messages are gone before they were read", extra={"lost": each})

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._topics.bounds()
        self._resting.never()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A task for every partition with something new, and several for those with most of it if that is wanted."""
        wanted = ranges(Reached.from_offset(start), Reached.from_offset(end))
        total = sum(each.end - each.start for each in wanted)
        size = max(1, -(-total // max(self._reading.min_partitions, 1))) if self._reading.min_partitions else total
        return [Messages(part) for each in wanted for part in _cut(each, size)]

    def commit(self, end: Offset) -> None:
        """Nothing: messages stay as long as the cluster keeps them."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Messages)
        try:
            yield from self._topics.read(partition.range)
        finally:
            self._topics.close()

    def stop(self) -> None:
        self._topics.close()

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which plan nothing.
        return {"topics": self._topics, "reading": self._reading}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(type(self)(**state).__dict__)


class WholeBatchesReader(TopicsStreamReader):
    """Reads whole batches: each partition by one task, also one that is new and has no messages so far."""

    def initialOffset(self) -> Offset:
        # Nothing is read so far, so that the first batch finds every partition to be new.
        return Reached().to_offset() if self._reading.starting_offsets == "earliest" else super().initialOffset()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin, stop = Reached.from_offset(start), Reached.from_offset(end)
        new = [Range(partition, at, at) for partition, at in sorted(stop.items()) if partition not in begin]
        return [Messages(each) for each in [*new, *ranges(begin, stop)]]


def _cut(wanted: Range, size: int) -> list[Range]:
    count = max(1, -(-(wanted.end - wanted.start) // max(size, 1)))
    edges = [wanted.start + (wanted.end - wanted.start) * i // count for i in range(count + 1)]
    return [Range(wanted.partition, a, b) for a, b in pairwise(edges)]
