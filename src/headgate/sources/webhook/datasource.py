"""The Spark streaming source `webhook`: `spark.readStream.format("webhook")`, over a spool that a server fills.

An offset is `{"row": n}`: the rows 0 to n-1 have been read. Spark sees only rows that are durable, so a number never
comes to mean another row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.model import StateError
from headgate.sources.webhook.options import ReaderOptions
from headgate.sources.webhook.rows import read_rows, spark_schema
from headgate.spool.marks import Marks
from headgate.spool.segments import first_row

__all__ = ["WebhookDataSource", "WebhookStreamReader"]

Offset = dict[str, int]


class WebhookDataSource(DataSource):
    """The requests that a webhook server has accepted."""

    @classmethod
    def name(cls) -> str:
        return "webhook"

    def schema(self) -> str:
        return spark_schema(ReaderOptions.from_spark(self.options).body)

    def streamReader(self, schema: StructType) -> WebhookStreamReader:
        return WebhookStreamReader(ReaderOptions.from_spark(self.options))


@dataclass
class _Rows(InputPartition):
    """Rows `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


class WebhookStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of rows, and reads them on the executors, which must see the directory of the spool."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._marks = Marks(options.directory)
        self._stop_at: int | None = None

    def initialOffset(self) -> Offset:
        """The oldest row that is not delivered."""
        return {"row": max(self._marks.delivered(), first_row(self._options.directory) or 0)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go.

        Spark asks this after it has logged the batch that ended at `start` as done, so this is where a query with
        its own sink confirms. `commit` would come one batch late, and never for the last.
        """
        durable = self._durable()
        self._refuse_gap(start["row"], durable)
        if self._options.confirm == "commit":
            self._marks.deliver(start["row"])
        end = durable if self._stop_at is None else min(durable, self._stop_at)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["row"] + limit.max_rows)
        return {"row": max(end, start["row"])}

    def reportLatestOffset(self) -> Offset | None:
        return {"row": self._durable()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = self._durable()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One range, because rows have one order; none, if all of it is delivered and may be gone."""
        if start["row"] >= end["row"] or end["row"] <= self._marks.delivered():
            return []
        return [_Rows(start["row"], end["row"])]

    def commit(self, end: Offset) -> None:
        """Nothing: see `latestOffset`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        yield from read_rows(self._options.directory, partition.start, partition.end, self._options.body)

    def _durable(self) -> int:
        return self._marks.read_tail() or 0

    def _refuse_gap(self, wanted: int, durable: int) -> None:
        """A checkpoint ahead of the spool: the spool was replaced, and its new rows would be taken for old ones."""
        if wanted > durable and self._marks.read_tail() is not None:
            raise StateError(
                f"the checkpoint stands at row {wanted}, and the spool ends at row {durable}",
                where=str(self._options.directory),
                remedy="put the spool back that belongs to the checkpoint, or start anew with a new checkpoint",
            )

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which need its options alone.
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(WebhookStreamReader(**state).__dict__)
