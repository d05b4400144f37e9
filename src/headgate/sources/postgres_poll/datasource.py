"""The Spark streaming source `pgpoll`: `spark.readStream.format("pgpoll")`.

An offset is the number of the next row and the place of the last one. A batch is what its plan says: see `plans`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import Point
from headgate.sources.postgres_poll.poller import Last, Poller
from headgate.sources.postgres_poll.reading import read_rows
from headgate.sources.postgres_poll.table import PolledTable, describe
from headgate.sources.resting import Resting

__all__ = ["PollDataSource", "PollStreamReader"]

Offset = dict[str, Any]


class PollDataSource(DataSource):
    """The rows of a table, in the order of a column that grows."""

    _table: PolledTable | None = None  # kept when Spark sends this object on, so that schema and reader agree

    @classmethod
    def name(cls) -> str:
        return "pgpoll"

    def schema(self) -> str:
        return self._described().ddl

    def streamReader(self, schema: StructType) -> PollStreamReader:
        return PollStreamReader(PollOptions.from_spark(self.options), self._described())

    def _described(self) -> PolledTable:
        if self._table is None:
            self._table = describe(PollOptions.from_spark(self.options))
        return self._table


@dataclass
class PlannedRows(InputPartition):
    """Keys of rows, and the number of the first."""

    first: int
    keys: pa.Table


class PollStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver's machine, and reads their rows on the executors."""

    def __init__(self, options: PollOptions, table: PolledTable) -> None:
        self._options = options
        self._table = table
        self._poller = Poller(options, table)
        self._resting = Resting(options.poll_interval_ms)
        self._until: tuple[Last | None] | None = None  # where a run that ends, ends

    def initialOffset(self) -> Offset:
        return Point(self._poller.book.first_row()).to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Decide the next batch.

        Spark asks this after it has logged the batch that ended at `start` as done. So this is also where that batch
        is committed, the last one of an idle query included, and where a commit that a crash prevented is made up for.
        """
        begin = Point.from_offset(start)
        self._poller.commit(begin)
        if self._resting or self._until == (None,):
            return start
        until = self._until[0] if self._until else None
        plan = self._poller.plan(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None, until)
        self._resting.looked(found=plan is not None)
        return plan.end.to_offset() if plan else start

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = (self._poller.last(),)
        self._resting.never()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = Point.from_offset(start), Point.from_offset(end)
        plan = self._poller.planned(first, last) if first != last else None
        if plan is None:
            return []
        keys, rows = plan.rows.drop_columns(["tracking"]), plan.rows.num_rows
        count = min(self._options.min_partitions, rows)
        edges = [rows * i // count for i in range(count + 1)]
        return [PlannedRows(first.row + a, keys.slice(a, b - a)) for a, b in pairwise(edges)]

    def commit(self, end: Offset) -> None:
        """Commit as `latestOffset` has already: Spark calls this one batch late, and not for the last batch."""
        self._poller.commit(Point.from_offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PlannedRows)
        return read_rows(self._options, self._table, partition.first, partition.keys)

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which plan nothing.
        return {"options": self._options, "table": self._table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(PollStreamReader(**state).__dict__)
