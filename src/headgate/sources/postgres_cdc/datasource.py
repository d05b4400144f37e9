"""The Spark streaming source `pgcdc`: `spark.readStream.format("pgcdc")`.

An offset is `{"lsn": n}`, the end LSN of a commit: everything up to it has been read. A batch is the half-open range
between two of them and holds whole transactions, so reading it again gives the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headgate.model import ConnectError, StateError
from headgate.sources.postgres_cdc.catalog import read_types
from headgate.sources.postgres_cdc.control import ReaderState, SpoolControl
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import LOCATED_SCHEMA, Range, located
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.sources.postgres_cdc.slot import connect, server_lsn
from headgate.sources.postgres_cdc.spool import SpoolIndex
from headgate.sources.postgres_cdc.typed import TypedTable, describe_table
from headgate.wire.pgoutput import format_lsn

__all__ = ["CdcDataSource", "CdcStreamReader"]

_ENVELOPE = (
    "_topic string, _position string, _op string, _schema string, _table string, _xid bigint, "
    "_commit_time timestamp, _payload binary"
)
_IMAGES = ", _key string, _before string, _after string"
_CATCH_UP_S = 300.0
_POLL_S = 0.02

Offset = dict[str, int]


class CdcDataSource(DataSource):
    """Every committed change of the tables of a publication."""

    @classmethod
    def name(cls) -> str:
        return "pgcdc"

    _typed: TypedTable | None = None  # kept when Spark sends this object on, so that schema and reader agree

    def schema(self) -> str:
        options = CdcOptions.from_spark(self.options)
        if options.located:
            return LOCATED_SCHEMA
        if options.table:
            self._typed = describe_table(options)
            return self._typed.ddl
        return _ENVELOPE + (_IMAGES if options.images else "")

    def streamReader(self, schema: StructType) -> CdcStreamReader:
        options = CdcOptions.from_spark(self.options)
        if options.table and self._typed is None:  # the user gave the schema
            self._typed = describe_table(options)
        return CdcStreamReader(options, self._typed)


@dataclass
class _Partition(InputPartition):
    range_: Range


class CdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of the spool, and decodes them on the executors."""

    def __init__(self, options: CdcOptions, typed: TypedTable | None = None) -> None:
        self._options = options
        self._typed = typed
        self._control = SpoolControl(options.spool_dir)
        self._reader: ReaderProcess | None = None
        self._index: SpoolIndex | None = None
        self._stop_at: int | None = None

    # Planning, in one long-lived process on the driver's machine ---------------------------------------------

    def initialOffset(self) -> Offset:
        """Where the slot stands: a new query misses nothing that the slot has kept."""
        return {"lsn": self._ensure().start_lsn}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go.

        Spark asks this after it has logged the batch that ended at `start` as done, so this is where a query with
        its own sink confirms, also while it is idle. `commit` would come one batch late, and never for the last.
        """
        state = self._ensure()
        self._refuse_gap(start["lsn"], state.start_lsn)
        if self._options.confirm == "commit":
            self._control.confirm(start["lsn"])
        index = self._fresh_index()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None:
            size = self._options.max_bytes_per_trigger
        end = index.end_within(start["lsn"], rows, size)
        if self._stop_at is not None:
            end = min(end, max(self._stop_at, start["lsn"]))
        return {"lsn": max(end, start["lsn"])}

    def reportLatestOffset(self) -> Offset | None:
        return {"lsn": self._fresh_index().end_lsn} if self._reader else None

    def prepareForTriggerAvailableNow(self) -> None:
        """What the server had committed by now; the spool may still be on its way there."""
        state = self._ensure()
        deadline = time.monotonic() + _CATCH_UP_S
        with connect(self._options.url) as connection:
            target = server_lsn(connection)
        while max(state.received_lsn, state.spool_end_lsn) < target and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            state = self._ensure()
        self._stop_at = self._fresh_index().end_lsn

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One range: a slot has one order, and so has what is read from it."""
        if start["lsn"] >= end["lsn"]:
            return []
        index = self._covering(start["lsn"], end["lsn"])
        if index is None:
            return []
        slices = index.slices(start["lsn"], end["lsn"])
        return [_Partition(Range(start["lsn"], self._ensure().system_id, slices))] if slices else []

    def commit(self, end: Offset) -> None:
        """Nothing: see `latestOffset`."""

    def _covering(self, start_lsn: int, end_lsn: int) -> SpoolIndex | None:
        """The index once it reaches `end_lsn`; None if all of the range was confirmed before, so it is delivered."""
        deadline = time.monotonic() + _CATCH_UP_S
        while True:
            state = self._ensure()
            if state.start_lsn >= end_lsn:
                return None
            self._refuse_gap(start_lsn, state.start_lsn)
            index = self._fresh_index()
            if index.end_lsn >= end_lsn:
                return index
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"the reader has not reached LSN {format_lsn(end_lsn)} again",
                    where=f"slot {self._options.slot}",
                    remedy="trying again; is PostgreSQL reachable, and is the slot still there?",
                )
            time.sleep(_POLL_S)

    def _refuse_gap(self, wanted_lsn: int, slot_lsn: int) -> None:
        """A slot ahead of the checkpoint is fine if we moved it there ourselves, and a loss otherwise."""
        if slot_lsn > wanted_lsn and slot_lsn > max(self._control.confirmed, self._control.advanced):
            raise StateError(
                f"the slot stands at {format_lsn(slot_lsn)}, the checkpoint at {format_lsn(wanted_lsn)}: "
                "somebody else moved or recreated it, and the changes between are gone",
                where=f"slot {self._options.slot}",
                remedy="start anew with a reset and a new snapshot, or restore the slot's server",
            )

    def _ensure(self) -> ReaderState:
        if self._reader is None:
            self._reader = ReaderProcess(_reader_options(self._options))
            return self._reader.ensure()
        return self._reader.state()

    def _fresh_index(self) -> SpoolIndex:
        if self._index is None:
            self._index = SpoolIndex(self._options.spool_dir)
        self._index.refresh()
        return self._index

    # Reading, on an executor ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        if self._options.located:
            yield located(partition.range_)
            return
        types = read_types(self._options.spool_dir, partition.range_.start_lsn)
        for batch in partition.range_.decode(self._options, types):
            yield self._typed.rows(batch, types) if self._typed else batch

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which need its options alone.
        return {"options": self._options, "typed": self._typed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(CdcStreamReader(**state).__dict__)


def _reader_options(options: CdcOptions) -> ReaderOptions:
    return ReaderOptions(
        url=options.url,
        slot=options.slot,
        publications=options.publications,
        spool=options.spool,
        max_spool_bytes=options.max_spool_bytes,
        failover=options.failover,
        create_publication_for=options.tables,
    )
