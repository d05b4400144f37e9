"""The Spark streaming source `atproto`: `spark.readStream.format("atproto")`.

An offset is `{"next": n}`: the events before number n have been read. It counts events; each has a row per op.
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

from headgate.model import StateError
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.atproto.places import open_place
from headgate.sources.atproto.rows import SCHEMA, read_batches
from headgate.sources.atproto.subscription import Subscription, refuse_loss

__all__ = ["AtprotoDataSource", "AtprotoStreamReader"]

Offset = dict[str, int]


class AtprotoDataSource(DataSource):
    """The events of a relay, as rows."""

    @classmethod
    def name(cls) -> str:
        return "atproto"

    def schema(self) -> str:
        AtprotoSourceOptions.from_spark(self.options)  # a mistake is found before the query starts
        return SCHEMA

    def streamReader(self, schema: StructType) -> AtprotoStreamReader:
        return AtprotoStreamReader(AtprotoSourceOptions.from_spark(self.options))


@dataclass
class _Events(InputPartition):
    """Events `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


class AtprotoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of events, and reads them on the executors, which must see the directory."""

    def __init__(self, options: AtprotoSourceOptions) -> None:
        self._options = options
        self._place = open_place(options)
        self._subscription: Subscription | None = None
        self._stop_at: int | None = None

    def initialOffset(self) -> Offset:
        latest = self._options.path and self._options.starting_offsets == "latest"
        return {"next": (self._place.end() or 0) if latest else self._place.first()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go. What ended at `start` is done, so this is where to confirm it."""
        self._follow()
        durable = self._place.end()
        begin = start["next"]
        if durable is None:
            return start
        self._refuse_gap(begin, durable)
        if self._options.confirm == "commit":
            self._place.deliver(begin)
        end = durable if self._stop_at is None else min(durable, self._stop_at)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {"next": max(end, begin)}

    def _follow(self) -> None:
        """Outside of a pipeline nobody else fills the spool."""
        if not self._options.url:
            return
        if self._options.confirm == "commit" and self._subscription is None:
            self._subscription = Subscription(self._options)
        refuse_loss(self._options.directory)

    def reportLatestOffset(self) -> Offset | None:
        return {"next": self._place.end() or 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = self._place.end() or 0

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One range, because events have one order; more, if that is asked for; none, if it is delivered and gone."""
        first, last = start["next"], end["next"]
        if first >= last or last <= self._place.delivered():
            return []
        inner = self._place.edges(first, last) if self._options.min_partitions > 1 else []
        return [_Events(a, b) for a, b in pairwise([first, *inner, last])]

    def commit(self, end: Offset) -> None:
        """Nothing: see `latestOffset`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Events)
        yield from read_batches(self._place.read(partition.start, partition.end))

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.stop()

    def _refuse_gap(self, wanted: int, durable: int) -> None:
        """A checkpoint ahead of what is there: something was replaced, and new events would be taken for old ones."""
        if wanted > durable:
            raise StateError(
                f"the checkpoint stands at event {wanted}, and what is there ends at {durable}",
                where=str(self._options.directory),
                remedy="put the files back that belong to the checkpoint, or start anew with a new checkpoint",
            )

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which need its options alone.
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(AtprotoStreamReader(**state).__dict__)
