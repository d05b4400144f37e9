"""What an executor does with the rows of one task: route them, check all, then send.

Rows are checked in rounds: all of a round before any of it is sent. A round is all rows of the task, unless they are
more than `ROUND_BYTES`, as those of a very large transaction may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import HeadgateError, record
from headgate.model.address import Address
from headgate.pipeline.following import Tracker
from headgate.pipeline.routing.admission import Reason
from headgate.pipeline.routing.job import Job, Report
from headgate.pipeline.routing.lanes import Lanes
from headgate.pipeline.routing.refusals import Refusals
from headgate.pipeline.routing.router import Routed, Router
from headgate.sources.base import Stretch

__all__ = ["ROUND_BYTES", "Output", "follow_task", "run_task"]

ROUND_BYTES = 128 << 20

Output = tuple[Literal["row", "dead"], pa.RecordBatch]


def run_task(job: Job, batches: Iterator[pa.RecordBatch], task: int) -> Iterator[Output | Report]:
    """Route and send. Yields rows for the driver, dead letters, and last what became of everything."""
    run = _Task(job, task)
    for rows in _rounds(batches):
        yield from run.round(rows)
        if run.report.unknown:
            break  # the driver admits them first, and the batch comes again
    run.report.close()
    yield run.report


def follow_task(job: Job, stretches: Iterator[Stretch], track: Tracker, task: int) -> Iterator[Output | Report]:
    """Route and send what the batch is about, then what comes behind it, until something fails or needs the driver."""
    total: Report | None = None
    for stretch in stretches:
        try:
            *dead, report = run_task(job, stretch.rows, task)
        except (HeadgateError, OSError):
            if stretch.is_planned:
                raise
            break
        assert isinstance(report, Report)
        needs_driver = bool(report.unknown or report.failed)
        if total is None:
            total = report
            # What an earlier attempt delivered of the batch says nothing of what comes behind it.
            job = replace(job, done=frozenset(), earlier=(), goes_on=True)
        elif needs_driver:
            break
        else:
            total.add(report)
        yield from dead
        if needs_driver:
            break
        total.end = stretch.end
        if dead:
            break  # they count as delivered when the driver has them
        track.add(report.rows, report.results, stretch, report.moments)
    if total is not None:
        total.acks = track.sums.acks
        yield total


def _rounds(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size > ROUND_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


class _Task:
    """The rows of one task, on their way."""

    def __init__(self, job: Job, task: int) -> None:
        self._job = job
        self._router = Router(job.rules)
        self.report = Report()
        self._lanes = Lanes(job, self.report, task)

    def round(self, batches: list[pa.RecordBatch]) -> Iterator[Output]:
        routed = [self._router.route(batch) for batch in batches]
        self.report.rows += sum(batch.num_rows for batch in batches)
        self._look_for_unknown(routed)
        if self.report.unknown:
            return
        refusals = Refusals(self._job, self.report)
        parts = [self._admitted(each, refusals) for each in routed]
        if self._job.echo:
            yield from (("row", _with_streams(rows)) for rows in parts if rows.rows.num_rows)
        self._lanes.send(parts, refusals)
        yield from (("dead", batch) for batch in refusals.dead)

    def _look_for_unknown(self, routed: Sequence[Routed]) -> None:
        """Destinations that the driver must admit before anything is sent."""
        known = self._job.known
        if known.is_full:
            return
        wanted = {target for each in routed for target in each.wanted if target not in known.partitions}
        # Sorted, as the order of a set differs between processes: which ones a full table still takes must not.
        self.report.unknown += sorted(
            (each.stream, each.topic) for each in wanted if self._job.admission.refusal(each) is None
        )

    def _admitted(self, routed: Routed, refusals: Refusals) -> Routed:
        """The rows that may have what they want."""
        self.report.absent += routed.absent
        self.report.defaulted += routed.defaulted
        refusals.missing(routed.missing)
        rows = replace(routed, rows=self._with_ids(routed))
        for number, wanted in enumerate(routed.wanted):
            reason = self._refusal(wanted)
            if reason is not None:
                of_it = rows.index == number
                refusals.refuse(rows.rows.filter(pa.array(of_it)), wanted, reason)
                rows = rows.where(~of_it)
        return rows

    def _with_ids(self, routed: Routed) -> pa.RecordBatch:
        """Rows that go where no earlier routes of this batch sent them, with ids of their own.

        A destination may have the row's id already, from where the earlier routes sent it, and would drop this one.
        """
        if not self._job.earlier:
            return routed.rows
        given = [
            {target for each in self._job.earlier for target in each.rules.choose(keys).destinations}
            for keys in routed.keys
        ]
        is_new = np.array(
            [
                bool(given[code]) and routed.wanted[number] not in given[code]
                for code, number in zip(routed.code, routed.index, strict=True)
            ],
            dtype=np.bool_,
        )
        at = routed.rows.schema.get_field_index(record.MESSAGE_ID)
        ids = routed.rows.column(at).cast(pa.string())
        other = pc.binary_join_element_wise(ids, f"~e{self._job.rules.epoch}", "")
        return routed.rows.set_column(at, record.MESSAGE_ID, pc.if_else(pa.array(is_new), other, ids))

    def _refusal(self, wanted: Address) -> Reason | None:
        refused = self._job.admission.refusal(wanted)
        if refused is None and wanted not in self._job.known.partitions:
            return Reason.CAP
        return refused


def _with_streams(routed: Routed) -> pa.RecordBatch:
    streams = pa.array([target.stream or None for target in routed.wanted], pa.string()).take(pa.array(routed.index))
    at = routed.rows.schema.get_field_index(record.PAYLOAD)
    rows = routed.rows.set_column(at, record.PAYLOAD, pc.fill_null(routed.rows.column(at), b""))  # no tombstones there
    return pa.RecordBatch.from_arrays([*rows.columns, streams], names=[*rows.schema.names, record.STREAM])
