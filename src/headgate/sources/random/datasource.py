"""The Spark source `random`: `spark.readStream.format("random")`, and `spark.read` for a table of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.sources.random.generator import generate
from headgate.sources.random.options import RandomOptions

__all__ = ["RandomDataSource"]

_SCHEMA = "id bigint, kind string, customer bigint, amount double, note string, _position string"

# Rows per Arrow batch: large enough to amortise a hand-over, small enough to stay in the processor's cache.
_CHUNK = 8192


class RandomDataSource(DataSource):
    """Made-up orders at a steady rate, the same in every run."""

    @classmethod
    def name(cls) -> str:
        return "random"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> RandomStreamReader:
        return RandomStreamReader(RandomOptions.from_spark(self.options))

    def reader(self, schema: StructType) -> RandomReader:
        return RandomReader(RandomOptions.from_spark(self.options))


@dataclass
class RowRange(InputPartition):
    """Rows `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


class RandomStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset `{"row": n}` means that rows 0 to n-1 have been read."""

    def __init__(self, options: RandomOptions) -> None:
        self._options = options
        self._began: tuple[float, int] | None = None  # when, and at which row, this run began
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._arrived(start["row"])
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["row"] + limit.max_rows)
        return {"row": max(end, start["row"])}

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._began is None else {"row": self._arrived(self._began[1])}

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows of a finite source; of an endless one, a second's worth from wherever the run begins."""
        self._stop_at = self._options.num_rows or -1

    def _arrived(self, start: int) -> int:
        """How many rows exist by now: the clock runs from where this run began, so an outage makes no flood."""
        options = self._options
        if self._began is None:
            self._began = (time.monotonic(), start)
        since, base = self._began
        if self._stop_at is not None:
            return self._stop_at if self._stop_at >= 0 else base + options.rows_per_second
        arrived = base + int((time.monotonic() - since) * options.rows_per_second)
        if options.rows_per_second == 0:
            return options.num_rows
        return min(arrived, options.num_rows) if options.num_rows else arrived

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _ranges(start["row"], end["row"], self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowRange)
        return _rows(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to release: rows are computed, not stored."""

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader to the executors, where neither clock nor target has a meaning.
        return {"_options": self._options, "_began": None, "_stop_at": None}


class RandomReader(DataSourceReader):
    """All rows of a finite source at once; none of an endless one."""

    def __init__(self, options: RandomOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return _ranges(0, self._options.num_rows, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowRange)
        return _rows(partition, self._options)


def _ranges(first: int, last: int, most: int) -> list[InputPartition]:
    count = max(1, min(most, last - first))
    edges = [first + (last - first) * i // count for i in range(count + 1)]
    return [RowRange(a, b) for a, b in pairwise(edges) if a < b]


def _rows(partition: RowRange, options: RandomOptions) -> Iterator[pa.RecordBatch]:
    for start in range(partition.start, partition.end, _CHUNK):
        yield generate(
            start,
            min(start + _CHUNK, partition.end),
            seed=options.seed,
            customers=options.customers,
            payload_bytes=options.payload_bytes,
        )
