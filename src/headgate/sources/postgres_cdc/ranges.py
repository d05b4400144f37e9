"""A range of the spool: what a task of a batch is given, and how it becomes rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import record
from headgate.model.position import timeline_text
from headgate.postgres.continuity import TimelineHistory
from headgate.sources.base import Pick
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.picking import pick_values, picked_columns
from headgate.sources.postgres_cdc.serving import Served, hand_over, read_served
from headgate.sources.postgres_cdc.spool import Slice, SpoolIndex, relations_before
from headgate.sources.postgres_cdc.type_book import read_types

if TYPE_CHECKING:
    from headgate.kernels.changes import RangeDecoder
    from headgate.kernels.changes.set_aside import SetAside
    from headgate.wire.pgtypes import TypeCatalog

__all__ = [
    "LOCATED_SCHEMA",
    "RANGE",
    "Range",
    "deliver_located",
    "delivery_columns",
    "end_on_one_timeline",
    "located",
    "shared",
    "spool_buffers",
]

RANGE = "_range"
LOCATED_SCHEMA = f"{RANGE} binary"
_LOCATED_ARROW = pa.schema([(RANGE, pa.binary())])


@dataclass(frozen=True, slots=True)
class Range:
    """Whole transactions: where they lie in the spool, and what is needed to decode them."""

    start_lsn: int
    end_lsn: int
    origin: str
    timeline: int
    run: tuple[int, ...]  # of the reader that filled the spool
    slices: list[Slice]
    relations: list[bytes]  # as they are where it begins
    types: TypeCatalog
    share: tuple[int, int, bool] | None = None  # a `kernels.changes.Share`, where tasks send the range between them
    served: Served | None = None  # where to read it, for who does not see the spool's files

    @classmethod
    def of(
        cls,
        directory: Path,
        start_lsn: int,
        end_lsn: int,
        origin: str,
        timeline: int,
        run: tuple[int, ...],
        slices: list[Slice],
        served: Served | None = None,
    ) -> Self:
        """A range of the spool in a directory, with what is in force where it begins."""
        relations, types = relations_before(directory, start_lsn), read_types(directory, start_lsn)
        return cls(start_lsn, end_lsn, origin, timeline, run, slices, relations, types, served=served)

    def decode(self, options: CdcOptions, picks: Sequence[str] = (), *, keys: bool = False) -> Iterator[pa.RecordBatch]:
        """One row per change, in order; `picks` are columns of the changed rows that come besides, as do keys."""
        yield from self.decoder(options, picks, keys=keys).decode(self.buffers(self.slices))

    def buffers(self, slices: list[Slice]) -> Iterator[npt.NDArray[np.uint8]]:
        """The bytes of whole transactions: as they lie on disk, or as the reader's machine sends them."""
        if self.served is None:
            yield from spool_buffers(slices)
            return
        for part in slices:
            data = read_served(self.served, Path(part.path).name, part.offset, part.length)
            yield np.frombuffer(data, dtype=np.uint8)

    def metadata(self) -> dict[bytes, bytes] | None:
        """What rows of a share say of themselves, to whoever sends them."""
        if self.share is None:
            return None
        number, count, by_key = self.share
        begin = f"{self.origin}-{timeline_text(self.timeline)}{self.start_lsn:016X}-"
        return {
            record.SHARE: f"{'key' if by_key else 'table'} {number + 1}/{count}".encode(),
            record.BEHIND: begin.encode(),
        }

    def decoder(self, options: CdcOptions, picks: Sequence[str] = (), *, keys: bool = False) -> RangeDecoder:
        """What decodes the range, and afterwards whatever follows it in the spool."""
        # Only executors decode; Spark's search for sources imports this module in every process.
        from headgate.kernels.changes import ALL, RangeDecoder, Share
        from headgate.sources.postgres_cdc.debezium import encoder_maker

        return RangeDecoder(
            origin=self.origin,
            timeline=self.timeline,
            relations=self.relations,
            types=self.types,
            format="msgpack" if options.table else options.envelope,
            subject=options.subject,
            images=options.images and not options.table,
            picks=picks,
            keys=keys,
            debezium=encoder_maker(options),
            set_aside=self._set_aside(options),
            share=ALL if self.share is None else Share(*self.share),
        )

    def _set_aside(self, options: CdcOptions) -> SetAside | None:
        store = options.dead_letter_store
        if store is None:
            return None
        return store.add if self.served is None else partial(hand_over, self.served)


def shared(range_: Range, end: Mapping[str, int]) -> list[Range]:
    """The range for each task that the offset at its end asks for; for one, where a transaction is about several."""
    if "tasks" not in end:
        return [range_]
    from headgate.kernels.changes import needs_one_task

    by_key = bool(end["by_key"])
    is_whole = any(needs_one_task(source, by_key=by_key) for source in spool_buffers(range_.slices))
    count = 1 if is_whole else end["tasks"]
    return [replace(range_, share=(number, count, by_key)) for number in range(count)]


def end_on_one_timeline(index: SpoolIndex, history: TimelineHistory, begin_lsn: int, end_lsn: int) -> int:
    """Where to end, at the latest: a range ends where a timeline does, so that all its rows have ids of one."""
    for _, timeline_end in history.ends:
        if begin_lsn < (last := index.end_before(min(timeline_end, end_lsn))):
            return last
    return end_lsn


def spool_buffers(slices: list[Slice]) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes as they lie on disk: a transaction larger than memory is paged in as it is decoded."""
    for part in slices:
        yield np.memmap(part.path, dtype=np.uint8, mode="r", offset=part.offset, shape=(part.length,))


def located(partition: Range) -> pa.RecordBatch:
    """The range itself as a row, for a later step of the same query to decode."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(partition)], pa.binary())], schema=_LOCATED_ARROW)


def deliver_located(
    batches: Iterator[pa.RecordBatch], options: CdcOptions, picks: Sequence[Pick] = ()
) -> Iterator[pa.RecordBatch]:
    """What `located` made -> topic, message id and payload of every change, and what is picked of the changed rows.

    The rows come from this query's own source, which is why unpickling them is safe.
    """
    columns = picked_columns(picks)
    for batch in batches:
        for row in batch.column(RANGE):
            partition: Range = pickle.loads(row.as_py())  # noqa: S301
            for rows in partition.decode(options, columns, keys=options.has_message_keys):
                yield delivery_columns(rows, partition, picks)


def delivery_columns(rows: pa.RecordBatch, of: Range, picks: Sequence[Pick]) -> pa.RecordBatch:
    """Topic, message id and payload of decoded changes, and what is picked of them."""
    delivery = {
        record.TOPIC: rows.column(record.TOPIC),
        record.MESSAGE_ID: pc.binary_join_element_wise(pa.scalar(of.origin), rows.column(record.POSITION), "-"),
        record.PAYLOAD: rows.column(record.PAYLOAD),
    }
    if record.PARTITION_KEY in rows.schema.names:
        delivery[record.PARTITION_KEY] = rows.column(record.PARTITION_KEY)
    delivery |= pick_values(rows, picks)
    return pa.RecordBatch.from_arrays(list(delivery.values()), names=list(delivery), metadata=of.metadata())
