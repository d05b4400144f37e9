"""The Spark streaming source `pgbroker`: `spark.readStream.format("pgbroker")`. An offset is a group's position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.sources.broker.group import SCHEMA, BrokerGroup, StreamOffset
from headgate.sources.broker.options import BrokerSourceOptions
from headgate.sources.resting import Resting

__all__ = ["BrokerDataSource", "BrokerStreamReader"]

Offset = dict[str, Any]
_NO_END = 2**63 - 1
_ALL = 2**31 - 1


class BrokerDataSource(DataSource):
    """The events of a group of the broker."""

    @classmethod
    def name(cls) -> str:
        return "pgbroker"

    def schema(self) -> str:
        BrokerSourceOptions.from_spark(self.options)  # a mistake is found before the query starts
        return SCHEMA

    def streamReader(self, schema: StructType) -> BrokerStreamReader:
        return BrokerStreamReader(BrokerSourceOptions.from_spark(self.options))


@dataclass
class Positions(InputPartition):
    """What one task reads: what is after one position, up to another."""

    after: int
    end: StreamOffset


class BrokerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of positions on the driver's machine, and reads them on the executors."""

    def __init__(self, options: BrokerSourceOptions) -> None:
        self._options = options
        self._group = BrokerGroup(options)
        self._committed: StreamOffset | None = None
        self._resting = Resting(options.poll_interval_ms)
        self._until: int | None = None  # where a run that ends, ends

    def initialOffset(self) -> Offset:
        return self._group.begin().as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Decide the next batch. Spark asks when it has logged what ended at `start` as done: so the cursor follows."""
        begin = StreamOffset.from_spark(start)
        self._commit(begin)
        if self._resting:
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets_per_trigger
        most = _ALL if isinstance(limit, ReadAllAvailable) else most
        end = self._group.plan(begin, most, _NO_END if self._until is None else self._until)
        self._resting.looked(found=end != begin)
        return start if end == begin else end.as_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._group.last()
        self._resting.never()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        reached = StreamOffset.from_spark(end)
        first, last = int(start["pos"]) if reached.after is None else reached.after, reached.pos
        count = max(1, min(self._options.min_partitions, last - first))
        edges = [first + (last - first) * i // count for i in range(count + 1)]
        return [Positions(a, replace(reached, pos=b)) for a, b in pairwise(edges)]

    def commit(self, end: Offset) -> None:
        self._commit(StreamOffset.from_spark(end))

    def _commit(self, reached: StreamOffset) -> None:
        if self._committed != reached:
            self._group.commit(reached)
            self._committed = reached

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Positions)
        try:
            yield from self._group.read(partition.after, partition.end)
        finally:
            self._group.close()

    def stop(self) -> None:
        self._group.release()

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which plan nothing.
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(BrokerStreamReader(**state).__dict__)
