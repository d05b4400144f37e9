"""One Spark job of a routed batch: sends the plan out with the rows, and brings back what became of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.destinations.base import SendResult
from headgate.model import HeadgateError, record
from headgate.pipeline.dispatch import task_number, tracker
from headgate.pipeline.following import Following
from headgate.pipeline.routing.plan import Plan, TaskReport, error_of
from headgate.pipeline.routing.refusals import DEAD_SCHEMA
from headgate.pipeline.routing.task import Output, follow_task, run_task
from headgate.sources.base import Follow, MakeRows, Offset

__all__ = ["Followed", "Outcome", "run_job"]

_KIND = "kind"
_REPORT = "report"
_ARROW_SCHEMA = pa.schema([*DEAD_SCHEMA, (_KIND, pa.string()), (_REPORT, pa.string())])
_SPARK_SCHEMA = (
    f"destination string, {record.STREAM} string, {record.TOPIC} string, reason string, {record.MESSAGE_ID} string, "
    f"{record.PARTITION_KEY} binary, {record.PARTITION} bigint, {record.PAYLOAD} binary, error string, "
    f"{_KIND} string, {_REPORT} string"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all tasks of a job have said."""

    row_count: int
    unknown: list[tuple[str, str]]
    sent: list[tuple[int, str, str, str, int]]  # task, group, rows
    failed: list[tuple[str, str, str, HeadgateError]]  # group, error
    results: list[SendResult]
    rows: pa.Table  # for destinations on the driver
    dead: pa.Table
    refused: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    absent: int = 0
    defaulted: int = 0
    samples: list[str] = field(default_factory=list)  # values that no route knows
    end: Offset | None = None  # how far a task that followed its source has come


class Followed(NamedTuple):
    """How a task follows its source, and whom it tells of it."""

    follow: Follow
    following: Following


def run_job(frame: DataFrame, plan: Plan, rows: MakeRows | None, followed: Followed | None = None) -> Outcome:
    """Run one attempt. `rows` makes the rows where the frame only says where they are."""
    task = _task(plan, rows) if followed is None else _following_task(plan, followed)
    table = frame.mapInArrow(task, _SPARK_SCHEMA).toArrow()
    kinds = table.column(_KIND)
    texts = table.filter(pc.equal(kinds, "report")).column(_REPORT).to_pylist()
    reports = [TaskReport.from_dict(json.loads(text)) for text in texts]
    names = [name for name in table.column_names if name not in (_KIND, _REPORT)]
    return Outcome(
        row_count=sum(report.rows for report in reports),
        unknown=sorted({each for report in reports for each in report.unknown}),
        sent=[(report.task, *each) for report in reports for each in report.sent],
        failed=[(*each[:3], error_of(each[3])) for report in reports for each in report.failed],
        results=[SendResult.from_dict(fields) for report in reports for fields in report.results],
        rows=table.filter(pc.equal(kinds, "row")).select(names),
        dead=table.filter(pc.equal(kinds, "dead")).select(names),
        refused=sum((report.refused for report in reports), Counter()),
        missing=sum(report.missing for report in reports),
        absent=sum(report.absent for report in reports),
        defaulted=sum(report.defaulted for report in reports),
        samples=[sample for report in reports for sample in report.samples],
        end=next((report.end for report in reports if report.end), None),
    )


def _task(plan: Plan, make_rows: MakeRows | None) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _results(run_task(plan, make_rows(batches) if make_rows else batches, task_number()))

    return run


def _following_task(plan: Plan, followed: Followed) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Behind an open circuit the driver must look again soon whether it is to be tried.
        track = tracker(followed.following, is_short=bool(plan.known.open))
        return _results(follow_task(plan, followed.follow(batches, track.goes_on), track, task_number()))

    return run


def _results(outputs: Iterator[Output | TaskReport]) -> Iterator[pa.RecordBatch]:
    for each in outputs:
        if isinstance(each, TaskReport):
            report = {_KIND: "report", _REPORT: json.dumps(each.as_dict())}
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
