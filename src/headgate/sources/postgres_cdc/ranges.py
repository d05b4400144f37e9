"""A range of the spool: what a task of a batch is given, and how it becomes rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import record
from headgate.postgres.continuity import TimelineHistory
from headgate.sources.base import Pick
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.picking import pick_values, picked_columns
from headgate.sources.postgres_cdc.spool import Slice, SpoolIndex, relations_before
from headgate.sources.postgres_cdc.type_book import read_types

if TYPE_CHECKING:
    from headgate.kernels.changes import RangeDecoder
    from headgate.wire.pgtypes import TypeCatalog

__all__ = [
    "LOCATED_SCHEMA",
    "RANGE",
    "Range",
    "deliver_located",
    "delivery_columns",
    "end_on_one_timeline",
    "located",
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

    def decode(
        self, options: CdcOptions, types: TypeCatalog | None = None, picks: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """One row per change, in order; `picks` are columns of the changed rows that come besides."""
        yield from self.decoder(options, types, picks).decode(spool_buffers(self.slices))

    def decoder(self, options: CdcOptions, types: TypeCatalog | None = None, picks: Sequence[str] = ()) -> RangeDecoder:
        """What decodes the range, and afterwards whatever follows it in the spool."""
        # Only executors decode; Spark's search for sources imports this module in every process.
        from headgate.kernels.changes import RangeDecoder
        from headgate.sources.postgres_cdc.debezium import encoder_maker

        store = options.dead_letter_store
        return RangeDecoder(
            origin=self.origin,
            timeline=self.timeline,
            relations=relations_before(options.spool_dir, self.start_lsn),
            types=types or read_types(options.spool_dir, self.start_lsn),
            format="msgpack" if options.table else options.envelope,
            subject=options.subject,
            images=options.images and not options.table,
            picks=picks,
            debezium=encoder_maker(options),
            set_aside=store.add if store else None,
        )


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
            for rows in partition.decode(options, picks=columns):
                yield delivery_columns(rows, partition.origin, picks)


def delivery_columns(rows: pa.RecordBatch, origin: str, picks: Sequence[Pick]) -> pa.RecordBatch:
    """Topic, message id and payload of decoded changes, and what is picked of them."""
    delivery = {
        record.TOPIC: rows.column(record.TOPIC),
        record.MESSAGE_ID: pc.binary_join_element_wise(pa.scalar(origin), rows.column(record.POSITION), "-"),
        record.PAYLOAD: rows.column(record.PAYLOAD),
    }
    delivery |= pick_values(rows, picks)
    return pa.RecordBatch.from_arrays(list(delivery.values()), names=list(delivery))
