"""The Spark streaming source `filelines`: `spark.readStream.format("filelines")`.

An offset carries the byte ranges of the batch that ends there, so reading it again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.sources.files.index import Point, Range
from headgate.sources.files.lines import SCHEMA, read_range
from headgate.sources.files.options import FileLinesOptions
from headgate.sources.files.planner import Planner
from headgate.sources.resting import Resting

__all__ = ["FileLinesDataSource", "FileLinesStreamReader"]

Offset = dict[str, Any]


class FileLinesDataSource(DataSource):
    """The lines of files, as they are written."""

    @classmethod
    def name(cls) -> str:
        return "filelines"

    def schema(self) -> str:
        FileLinesOptions.from_spark(self.options)  # a mistake is found before the query starts
        return SCHEMA

    def streamReader(self, schema: StructType) -> FileLinesStreamReader:
        return FileLinesStreamReader(FileLinesOptions.from_spark(self.options))


@dataclass
class Ranges(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]


class FileLinesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges on the driver's machine, and reads them on the executors."""

    def __init__(self, options: FileLinesOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._resting = Resting(options.poll_interval_ms)

    def initialOffset(self) -> Offset:
        return self._planner.begin().to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Spark asks this after it has logged the batch that ended at `start` as done."""
        if self._resting:
            return start
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes_per_trigger
        point = Point.from_offset(start)
        end = self._planner.next(point, None if isinstance(limit, ReadAllAvailable) else most)
        self._resting.looked(found=end != point)
        return start if end == point else end.to_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.end_here()
        self._resting.never()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Files in their order, in groups of about as many bytes."""
        if start == end:
            return []
        ranges = Point.from_offset(end).ranges
        first, last = ranges[0].base, ranges[-1].base + ranges[-1].end - ranges[-1].start
        size = max(1, -(-(last - first) // self._options.min_partitions))
        groups: dict[int, list[Range]] = {}
        for each in ranges:
            groups.setdefault((each.base - first) // size, []).append(each)
        return [Ranges(tuple(group)) for group in groups.values()]

    def commit(self, end: Offset) -> None:
        """Nothing: finished files are removed when the stream goes on, see `Planner`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ranges)
        for each in partition.ranges:
            yield from read_range(
                each, skip_header=self._options.skip_header, fail_on_data_loss=self._options.fail_on_data_loss
            )

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which plan nothing.
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(FileLinesStreamReader(**state).__dict__)
