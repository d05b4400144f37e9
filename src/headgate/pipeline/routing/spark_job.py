"""Runs one Spark job of a routed batch: sends it out with the rows, and brings back what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.model import record
from headgate.pipeline.dispatch import task_number, tracker
from headgate.pipeline.following import Following
from headgate.pipeline.routing.job import Job, Report
from headgate.pipeline.routing.refusals import DEAD_SCHEMA
from headgate.pipeline.routing.task import Output, follow_task, run_task
from headgate.sources.base import Follow, MakeRows

__all__ = ["Followed", "Outcome", "run_job"]

_decode_report = msgspec.json.Decoder(Report).decode

_KIND = "kind"
_REPORT = "report"
_ARROW_SCHEMA = pa.schema([*DEAD_SCHEMA, (_KIND, pa.string()), (_REPORT, pa.string())])
_SPARK_SCHEMA = (
    f"destination string, {record.STREAM} string, {record.TOPIC} string, reason string, {record.MESSAGE_ID} string, "
    f"{record.PARTITION_KEY} binary, {record.PARTITION} bigint, {record.PAYLOAD} binary, error string, "
    f"{_KIND} string, {_REPORT} string"
)


class Outcome(NamedTuple):
    """What all tasks of a job have said and handed back."""

    report: Report
    rows: pa.Table  # for destinations on the driver
    dead: pa.Table


class Followed(NamedTuple):
    """How a task follows its source, and whom it tells of it."""

    follow: Follow
    following: Following


def run_job(frame: DataFrame, job: Job, rows: MakeRows | None, followed: Followed | None = None) -> Outcome:
    """Run one attempt. `rows` makes the rows where the frame only says where they are."""
    task = _task(job, rows) if followed is None else _following_task(job, followed)
    table = frame.mapInArrow(task, _SPARK_SCHEMA).toArrow()
    kinds = table.column(_KIND)
    report = Report()
    for text in table.filter(pc.equal(kinds, "report")).column(_REPORT).to_pylist():
        report.add(_decode_report(text))
    names = [name for name in table.column_names if name not in (_KIND, _REPORT)]
    return Outcome(
        report,
        rows=table.filter(pc.equal(kinds, "row")).select(names),
        dead=table.filter(pc.equal(kinds, "dead")).select(names),
    )


def _task(job: Job, make_rows: MakeRows | None) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _results(run_task(job, make_rows(batches) if make_rows else batches, task_number()))

    return run


def _following_task(job: Job, followed: Followed) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Behind an open circuit the driver must look again soon whether it is to be tried.
        track = tracker(followed.following, is_short=bool(job.known.open))
        return _results(follow_task(job, followed.follow(batches, track.goes_on), track, task_number()))

    return run


def _results(outputs: Iterator[Output | Report]) -> Iterator[pa.RecordBatch]:
    for each in outputs:
        if isinstance(each, Report):
            report = {_KIND: "report", _REPORT: msgspec.json.encode(each).decode()}
            yield pa.RecordBatch.from_pylist([report], schema=_ARROW_SCHEMA)
        else:
            yield _as_result(*each)


def _as_result(kind: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of either sort in the one schema that a job can return."""
    given = {name: batch.column(name) for name in batch.schema.names}
    given[_KIND] = pa.array([kind] * batch.num_rows, pa.string())
    columns = [
        given[column.name].cast(column.type) if column.name in given else pa.nulls(batch.num_rows, column.type)
        for column in _ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)
