"""The Spark streaming source `pgcdc`: `spark.readStream.format("pgcdc")`.

An offset is `{"lsn": n, "timeline": t}`, the end LSN of a commit: everything up to it has been read. A batch is the
half-open range between two of them and holds whole transactions of one timeline, so reading it again gives the same
rows. A server that took over from another has another timeline, and may not have all that the other one sent: what it
never had is no part of any later batch.

Where somebody else confirms (a pipeline of headgate), what is confirmed is no part of a later batch either: a task that
follows comes further than its batch was planned to. There an offset also has a number, `turn`, which makes each a new
one, so that Spark runs a batch also when nothing has come yet: it follows.
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
from headgate.postgres import connect
from headgate.postgres.continuity import TimelineHistory, WalPosition, position_of
from headgate.postgres.slot import server_lsn
from headgate.sources.postgres_cdc.control import ReaderState, SpoolControl
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import LOCATED_SCHEMA, Range, end_on_one_timeline, located, shared
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.sources.postgres_cdc.spool import Slice, SpoolIndex
from headgate.sources.typed import TypedTable, describe_table
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
            self._typed = _typed_table(options)
            return self._typed.ddl
        return _ENVELOPE + (_IMAGES if options.images else "")

    def streamReader(self, schema: StructType) -> CdcStreamReader:
        options = CdcOptions.from_spark(self.options)
        if options.table and self._typed is None:  # the user gave the schema
            self._typed = _typed_table(options)
        return CdcStreamReader(options, self._typed)


def _typed_table(options: CdcOptions) -> TypedTable:
    return describe_table(
        options.url, options.table, publications=options.publications, text_columns=options.text_column_names
    )


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
        self._written = WalPosition(0, 0)  # how far the server is known to have written

    # Planning, in one long-lived process on the driver's machine ---------------------------------------------

    def initialOffset(self) -> Offset:
        """Where the slot stands: a new query misses nothing that the slot has kept."""
        state = self._ensure()
        return _offset(state.history, state.start_lsn)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go.

        Spark asks this after it has logged the batch that ended at `start` as done, so this is where a query with
        its own sink confirms, also while it is idle. `commit` would come one batch late, and never for the last.
        """
        state = self._ensure()
        begin_lsn = self._undelivered_lsn(start, state)
        if self._options.confirm == "commit":
            self._control.confirm(position_of(start))
        stop_at = self._stop_at
        index = self._fresh_index() if stop_at is None else self._index_with_more(begin_lsn, stop_at)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None:
            size = self._options.max_bytes_per_trigger
        end_lsn = index.end_within(begin_lsn, rows, size)
        if stop_at is not None:
            end_lsn = min(end_lsn, index.end_before(stop_at))
        if self._options.follow:
            end_lsn = end_on_one_timeline(index, state.history, begin_lsn, max(end_lsn, begin_lsn))
            return _offset(state.history, end_lsn) | {"turn": start.get("turn", 0) + 1}
        if end_lsn <= begin_lsn:
            return start
        self._written = WalPosition(state.timeline, max(self._written.lsn, end_lsn))
        end_lsn = end_on_one_timeline(index, state.history, begin_lsn, end_lsn)
        return _offset(state.history, end_lsn) | self._sharing()

    def _sharing(self) -> Offset:
        """How a batch is shared is written down with its end: a replay shares it in the same way."""
        options = self._options
        return {} if options.ordering == "total" else {"tasks": options.tasks, "by_key": int(options.ordering == "key")}

    def reportLatestOffset(self) -> Offset | None:
        if not self._reader:
            return None
        return _offset(self._ensure().history, self._fresh_index().end_lsn)

    def prepareForTriggerAvailableNow(self) -> None:
        """All that the server has committed by now, however much of it the spool can hold at a time."""
        self._ensure()
        with connect(self._options.url) as connection:
            self._stop_at = server_lsn(connection)

    def _index_with_more(self, begin_lsn: int, stop_at: int) -> SpoolIndex:
        """The index once it has something behind `begin_lsn`, or the reader has come to where it is to stop."""
        deadline = time.monotonic() + _CATCH_UP_S
        while True:
            state = self._ensure()
            index = self._fresh_index()
            if index.end_lsn > begin_lsn or max(state.received_lsn, state.spool_end_lsn) >= stop_at:
                return index
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"the reader came to {format_lsn(state.received_lsn)}, and no further in {_CATCH_UP_S:.0f} s; "
                    f"all there is goes up to {format_lsn(stop_at)}",
                    where=f"slot {self._options.slot}",
                    remedy="trying again; is PostgreSQL reachable, and does a large transaction hold it up?",
                )
            time.sleep(_POLL_S)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One range: a slot has one order. Where less must stay in order, the tasks that share it get the same one."""
        if position_of(start) >= position_of(end) and not self._options.follow:
            return []
        covered = self._covering(start, end)
        if covered is not None:
            index, state, begin_lsn, end_lsn = covered
            slices = index.slices(begin_lsn, end_lsn)
            timeline = state.history.timeline_of(end_lsn)
            if slices:
                range_ = self._range(begin_lsn, end_lsn, timeline, state, slices)
                return [_Partition(each) for each in shared(range_, end)]
        return [self._nothing_yet(start)] if self._options.follow else []

    def _range(self, begin_lsn: int, end_lsn: int, timeline: int, state: ReaderState, slices: list[Slice]) -> Range:
        place = self._options.spool_dir, begin_lsn, end_lsn
        return Range.of(*place, state.origin, timeline, state.run, slices, state.served)

    def _nothing_yet(self, start: Offset) -> _Partition:
        """An empty range, for a task that only follows."""
        state = self._ensure()
        begin_lsn = self._undelivered_lsn(start, state)
        return _Partition(self._range(begin_lsn, begin_lsn, state.timeline, state, []))

    def commit(self, end: Offset) -> None:
        """Nothing: see `latestOffset`."""

    def _covering(self, start: Offset, end: Offset) -> tuple[SpoolIndex, ReaderState, int, int] | None:
        """The index once it reaches the end, and the range in the server's LSNs; None if all of it is delivered.

        Of a batch that was planned on another timeline, that is what the server of now has of it.
        """
        deadline = time.monotonic() + _CATCH_UP_S
        while True:
            state = self._ensure()
            end_lsn = state.history.here(position_of(end))
            begin_lsn = self._undelivered_lsn(start, state)
            if max(state.start_lsn, begin_lsn) >= end_lsn:
                return None
            index = self._fresh_index()
            if index.end_lsn >= end_lsn:
                return index, state, begin_lsn, end_lsn if end_lsn == end["lsn"] else index.end_before(end_lsn)
            if end_lsn < end["lsn"] and state.received_lsn >= end_lsn:
                return index, state, begin_lsn, index.end_before(end_lsn)
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"the reader has not reached LSN {format_lsn(end_lsn)} again",
                    where=f"slot {self._options.slot}",
                    remedy="trying again; is PostgreSQL reachable, and is the slot still there?",
                )
            time.sleep(_POLL_S)

    def _undelivered_lsn(self, start: Offset, state: ReaderState) -> int:
        """Where to go on: behind a batch's start, and behind what is delivered and recorded."""
        begin_lsn, confirmed = self._begin_lsn(start, state), self._control.confirmed
        if self._options.confirm == "commit" or not state.history.knows(confirmed.timeline):
            return begin_lsn
        return max(begin_lsn, state.history.here(confirmed))

    def _begin_lsn(self, start: Offset, state: ReaderState) -> int:
        """Where a batch begins in the server's LSNs. Refuses what the reader cannot vouch for.

        A slot ahead of the checkpoint is fine if it was the reader that moved it there, and a loss otherwise; a server
        that has not come as far as the checkpoint is not the one that was read.
        """
        begin_lsn = state.history.here(position_of(start))
        written_lsn = self._written_lsn(state, begin_lsn)
        if not state.history.knows(position_of(start).timeline):
            message = (
                f"the checkpoint is on timeline {start['timeline']}, from which the server's timeline "
                f"{state.timeline} does not descend"
            )
        elif begin_lsn < state.began_lsn:
            message = (
                f"the slot was at {format_lsn(state.began_lsn)} when reading began, the checkpoint is at "
                f"{format_lsn(begin_lsn)}: the changes between are gone"
            )
        elif begin_lsn > written_lsn:
            message = (
                f"the checkpoint is at {format_lsn(begin_lsn)}, but the server has written up to "
                f"{format_lsn(written_lsn)} only: it was restored from a backup, or is another one"
            )
        else:
            return begin_lsn
        raise StateError(
            message,
            where=f"slot {self._options.slot}",
            remedy="start anew with `headgate reset PIPELINE`, or in your own Spark with a new checkpoint and a new "
            "snapshot; or bring the right server back",
        )

    def _written_lsn(self, state: ReaderState, wanted_lsn: int) -> int:
        """How far the server has written, as far as that must be known.

        The spool shows a transaction before the reader's state does, and forgets it afterwards; so both count. It is
        looked at only if need be: an idle query asks many times a second.
        """
        lsn = max(state.server_lsn, state.received_lsn)
        if state.timeline == self._written.timeline:
            lsn = max(lsn, self._written.lsn)
        if lsn < wanted_lsn:
            lsn = max(lsn, self._fresh_index().end_lsn)
        self._written = WalPosition(state.timeline, lsn)
        return lsn

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
        range_ = partition.range_
        for batch in range_.decode(self._options):
            yield self._typed.rows(batch, range_.types) if self._typed else batch

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to the executors, which need its options alone.
        return {"options": self._options, "typed": self._typed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(CdcStreamReader(**state).__dict__)


def _offset(history: TimelineHistory, end_lsn: int) -> Offset:
    return {"lsn": end_lsn, "timeline": history.timeline_of(end_lsn)}


def _reader_options(options: CdcOptions) -> ReaderOptions:
    return ReaderOptions(
        url=options.url,
        slot=options.slot,
        publications=options.publications,
        spool=options.spool,
        max_spool_bytes=options.max_spool_bytes,
        failover=options.failover,
        serve_on=options.serve_on,
        dead_letters=options.dead_letters,
        max_dead_letters=options.max_dead_letters,
        max_dead_letter_bytes=options.max_dead_letter_bytes,
        create_publication_for=options.tables,
        heartbeat_ms=options.debezium_options.heartbeat_interval_ms if options.format == "debezium" else 0,
    )
