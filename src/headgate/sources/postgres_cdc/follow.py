"""Follows the spool: a task goes on behind the range it was given, and hands out what commits as it commits.

The reader rings a bell whenever the spool has grown. Each stretch is whole transactions of one run of the reader; where
the next one needs more than a sender can do by itself, following ends, and the next batch begins there:

- before a transaction that describes a table, because its description is published before its rows;
- when the reader began anew, because the server may be another one, on another timeline;
- when the spool cannot be read, because the reader is gone or has let go of it.

Whoever wants it to end earlier rings the same bell.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.model import HeadgateError
from headgate.postgres.continuity import WalPosition
from headgate.runtime.wake import Listener
from headgate.sources.base import GoesOn, Pick, Stretch
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.picking import picked_columns
from headgate.sources.postgres_cdc.ranges import RANGE, Range, delivery_columns, end_on_one_timeline
from headgate.sources.postgres_cdc.spool import BELL, Slice, SpoolIndex

__all__ = ["follow_located"]

_BEGIN = ord("B")
_KIND_AT = 4  # behind a message's length


def follow_located(
    batches: Iterator[pa.RecordBatch], goes_on: GoesOn, options: CdcOptions, picks: Sequence[Pick] = ()
) -> Iterator[Stretch]:
    """The range that `located` made, then what comes behind it, as long as `goes_on`."""
    for batch in batches:
        for row in batch.column(RANGE):
            yield from _Follower(pickle.loads(row.as_py()), options, picks).stretches(goes_on)  # noqa: S301


class _Follower:
    """One task of one batch."""

    def __init__(self, planned: Range, options: CdcOptions, picks: Sequence[Pick]) -> None:
        self._options = options
        self._picks = tuple(picks)
        self._control = SpoolControl(options.spool_dir)
        self._index = SpoolIndex(options.spool_dir)
        self._planned = planned = self._undelivered(planned)
        self._decoder = planned.decoder(options, picked_columns(picks), keys=options.has_message_keys)
        self._reached_lsn = planned.end_lsn
        self._is_over = False

    def stretches(self, goes_on: GoesOn) -> Iterator[Stretch]:
        self._index.refresh()
        committed_at = self._index.committed_at(self._planned.start_lsn)
        rows = self._rows(self._planned.slices)
        yield Stretch(rows, self._offset(), is_planned=True, committed_at=committed_at)
        try:
            with Listener(self._options.spool_dir / BELL) as bell:
                while pause_s := goes_on():
                    while (end_lsn := self._next_end()) is not None:
                        slices = self._index.slices(self._reached_lsn, end_lsn)
                        committed_at = self._index.committed_at(self._reached_lsn)
                        self._reached_lsn = end_lsn
                        yield Stretch(self._rows(slices), self._offset(), committed_at=committed_at)
                        if not (pause_s := goes_on()):
                            return
                    if self._is_over or not bell.wait(pause_s):
                        return
        except (HeadgateError, OSError, ValueError):
            return  # the next batch finds the same, and says what is wrong

    def _next_end(self) -> int | None:
        """How far the next stretch goes; None if nothing has come, or following is over."""
        options, reached_lsn = self._options, self._reached_lsn
        self._index.refresh()
        end_lsn = self._index.end_within(reached_lsn, options.max_offsets_per_trigger, options.max_bytes_per_trigger)
        if end_lsn <= reached_lsn:
            return None
        # Looked at behind the index: what a new run of the reader has written, its state tells before.
        state = self._control.read_state()
        if state is None or state.run != self._planned.run:
            self._is_over = True
            return None
        end_lsn = end_on_one_timeline(self._index, state.history, reached_lsn, end_lsn)
        end_lsn = self._before_description(end_lsn)
        self._is_over = end_lsn <= reached_lsn or state.history.timeline_of(end_lsn) != self._planned.timeline
        return None if self._is_over else end_lsn

    def _before_description(self, end_lsn: int) -> int:
        """Where to end so that no transaction is taken that something is said before."""
        for path, begins, ends in self._index.transactions(self._reached_lsn, end_lsn):
            kinds = np.memmap(path, dtype=np.uint8, mode="r")[begins + _KIND_AT]
            described = np.flatnonzero(kinds != _BEGIN)
            if len(described):
                first = int(described[0])
                return int(ends[first - 1]) if first else self._end_before(int(ends[0]))
        return end_lsn

    def _end_before(self, end_lsn: int) -> int:
        return max(self._index.end_before(end_lsn - 1), self._reached_lsn)

    def _undelivered(self, planned: Range) -> Range:
        """Nothing of the range if it is recorded, by an earlier attempt at this batch: the spool has let go of it."""
        if self._control.confirmed < WalPosition(planned.timeline, planned.end_lsn):
            return planned
        end = planned.end_lsn, planned.end_lsn
        return Range.of(self._options.spool_dir, *end, planned.origin, planned.timeline, planned.run, [])

    def _rows(self, slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        for rows in self._decoder.decode(self._planned.buffers(slices)):
            yield delivery_columns(rows, self._planned, self._picks)

    def _offset(self) -> dict[str, int]:
        return {"lsn": self._reached_lsn, "timeline": self._planned.timeline}
