"""Sends a batch: on the executors, in one job, with the results coming back to the driver.

The senders are part of the streaming plan itself (`mapInArrow` behind the delivery columns), which spares every
batch the work of planning them again. Each task yields its rows only if a destination inside the driver asks for
them, and at its end one row that reports what became of them.

A task may also follow its source: it sends what its batch is about, then whatever comes behind it, as it comes. What
fails while it follows only ends that. The next batch meets it again, with all that is done about failures there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from headgate.destinations.base import Destination, Lane, LocalDestination, Sender, SendResult
from headgate.model import DataError, HeadgateError, InternalError, record
from headgate.pipeline.acks import Acks, Moments
from headgate.pipeline.following import Following, Tracker
from headgate.runtime.failpoints import failpoint
from headgate.sources.base import Follow, MakeRows, Offset, Stretch

__all__ = [
    "BatchResult",
    "collect_results",
    "ensure_all",
    "following_frame",
    "send_frame",
    "send_initial",
    "task_number",
    "tracker",
]

_log = logging.getLogger(__name__)

_BATCHES_AT_ONCE = 16  # of the initial snapshot, some megabytes each

_BATCH_ID = "streaming.sql.batchId"  # what Spark calls the number of a batch among the properties of its job

_RESULT = "_result"
_RESULT_SCHEMA = f"{record.TOPIC} string, {record.MESSAGE_ID} string, {record.PAYLOAD} binary, {_RESULT} string"
_ARROW_SCHEMA = pa.schema(
    [
        (record.TOPIC, pa.string()),
        (record.MESSAGE_ID, pa.string()),
        (record.PAYLOAD, pa.binary()),
        (_RESULT, pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch at all its destinations."""

    rows: int
    payload_bytes: int
    duplicates: int
    end: Offset | None = None  # how far a task that followed has really come
    acks: Acks = field(default_factory=Acks)  # of a task that followed
    moments: Moments | None = None


def send_frame(
    delivery: DataFrame, destinations: Sequence[Destination], rows: MakeRows | None = None, batch_id: int = 0
) -> DataFrame:
    """The delivery columns, sent: evaluating the result sends the rows. `rows` makes those columns, if need be."""
    remote = [d for d in destinations if not isinstance(d, LocalDestination)]
    echo = len(remote) < len(destinations)
    return delivery.mapInArrow(_task(remote, rows, batch_id, echo=echo), _RESULT_SCHEMA)


def following_frame(
    located: DataFrame, destinations: Sequence[Destination], follow: Follow, following: Following
) -> DataFrame:
    """Send the rows that a batch locates, and those that come behind them while it goes on."""
    return located.mapInArrow(_following_task(destinations, follow, following), _RESULT_SCHEMA)


def _following_task(destinations: Sequence[Destination], follow: Follow, following: Following) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        track = tracker(following)
        for stretch in follow(batches, track.goes_on):
            try:
                rows, results, moments = _send_all(stretch, destinations)
            except (HeadgateError, OSError):
                if stretch.is_planned:
                    raise
                break
            track.add(rows, results, stretch, moments)
        told = [result.as_dict() for result in track.sums.results]
        acks = msgspec.to_builtins(track.sums.acks)
        yield _report({"rows": track.sums.rows, "results": told, "end": track.end, "acks": acks})

    return run


def tracker(following: Following, *, is_short: bool = False) -> Tracker:
    """Of the task that this is. `is_short`: it may not go on for long."""
    context = TaskContext.get()
    assert context is not None
    batch_id = int(context.getLocalProperty(_BATCH_ID) or -1)
    return Tracker(following, batch_id, context.taskAttemptId(), is_short=is_short)


def _send_all(stretch: Stretch, destinations: Sequence[Destination]) -> tuple[int, list[SendResult], Moments | None]:
    """Send all rows, and wait until they are safe."""
    senders: list[Sender] = []
    rows, began = 0, time.time()
    with ExitStack() as opened:
        for batch in stretch.rows:
            if batch.num_rows == 0:
                continue
            _refuse_nulls(batch)
            lane = Lane(task=task_number(), goes_on=not stretch.is_planned)
            senders = senders or [opened.enter_context(destination.open(lane)) for destination in destinations]
            for destination, sender in zip(destinations, senders, strict=True):
                sender.send(destination.fit(batch))
            failpoint("sender.sending")
            rows += batch.num_rows
        sent = time.time()
        results = [_complete(sender.finish()) for sender in senders]
    return rows, results, Moments(began, sent, time.time()) if rows else None


def _task(destinations: Sequence[Destination], make_rows: MakeRows | None, batch_id: int, *, echo: bool) -> MakeRows:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        senders: list[Sender] = []
        rows, began = 0, time.time()
        with ExitStack() as opened:
            for batch in make_rows(batches) if make_rows else batches:
                if batch.num_rows == 0:
                    continue
                _refuse_nulls(batch)
                lane = Lane(batch_id=batch_id, task=task_number()).sharing(batch)
                senders = senders or [opened.enter_context(destination.open(lane)) for destination in destinations]
                for destination, sender in zip(destinations, senders, strict=True):
                    sender.send(destination.fit(batch))
                failpoint("sender.sending")
                rows += batch.num_rows
                if echo:
                    yield _echoed(batch)
            sent = time.time()
            results = [_complete(sender.finish()).as_dict() for sender in senders]
        moments = (began, sent, time.time()) if rows else None
        yield _report({"rows": rows, "results": results, "moments": moments})

    return run


def task_number() -> int:
    """Which task of the job this is; the same in every attempt at a batch."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def _complete(result: SendResult) -> SendResult:
    """Here one topic that failed fails the batch."""
    for failure in result.failures:
        error = HeadgateError.from_text(f"headgate-error: {json.dumps(failure['error'])}")
        raise error or InternalError("a failure that nobody can read", where=f"destinations.{result.destination}")
    return result


def _refuse_nulls(batch: pa.RecordBatch) -> None:
    for name, what in ((record.TOPIC, "topic"), (record.PAYLOAD, "payload")):
        is_missing = pc.is_null(batch.column(name))
        if name == record.PAYLOAD and record.PARTITION_KEY in batch.schema.names:
            is_missing = pc.and_(is_missing, pc.is_null(batch.column(record.PARTITION_KEY)))  # else it is a tombstone
        if pc.any(is_missing).as_py():
            row = pc.index(is_missing, True).as_py()
            raise DataError(
                f"a row has no {what}",
                where=f"message {batch.column(record.MESSAGE_ID)[row]}",
                remedy=f"filter such rows out, or give the column that makes the {what} a value (coalesce)",
            )


def _echoed(batch: pa.RecordBatch) -> pa.RecordBatch:
    *columns, payload = (batch.column(name) for name in record.DELIVERY_COLUMNS)
    columns.append(pc.fill_null(payload, b""))  # for the destinations inside the driver, which have no tombstones
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(batch.num_rows, pa.string())], schema=_ARROW_SCHEMA)


def _report(report: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{_RESULT: json.dumps(report)}], schema=_ARROW_SCHEMA)


def collect_results(sent: DataFrame, destinations: Sequence[Destination], batch_id: int = 0) -> BatchResult:
    """Run the job of `send_frame`, then hand the rows to the destinations inside this process."""
    table = sent.toArrow()
    is_report = pc.is_valid(table.column(_RESULT))
    tasks = [json.loads(text) for text in table.filter(is_report).column(_RESULT).to_pylist()]
    rows = table.filter(pc.invert(is_report)).drop_columns([_RESULT])
    local = [d for d in destinations if isinstance(d, LocalDestination)]
    for destination in local:
        destination.accept(rows)
    results = [SendResult.from_dict(fields) for task in tasks for fields in task["results"]]
    for each in destinations:
        reports = [told for result in results if result.destination == each.name for told in result.reports]
        each.learn(reports)
        each.complete(batch_id, reports)
    local_bytes = pc.sum(pc.binary_length(rows.column(record.PAYLOAD))).as_py() or 0
    return BatchResult(
        rows=sum(task["rows"] for task in tasks),
        payload_bytes=sum(result.payload_bytes for result in results) + local_bytes * len(local),
        duplicates=sum(result.duplicates for result in results),
        end=next((end for task in tasks if (end := task.get("end"))), None),
        acks=_acks(tasks),
        moments=Moments.around(Moments(*each) for task in tasks if (each := task.get("moments"))),
    )


def _acks(tasks: list[dict[str, Any]]) -> Acks:
    acks = Acks()
    for task in tasks:
        acks.add(msgspec.convert(task.get("acks", {}), Acks))
    return acks


def send_initial(
    batches: Iterator[pa.RecordBatch], destinations: Sequence[Destination], interrupted: Callable[[], bool]
) -> int:
    """Send rows from this process, before any batch of the query; how many."""
    rows = 0
    while some := list(islice(batches, _BATCHES_AT_ONCE)):
        if interrupted():
            raise InternalError("the pipeline is stopping; the initial snapshot begins anew")
        for destination in destinations:
            _send_here(some, destination)
        failpoint("pipeline.initial")
        rows += sum(batch.num_rows for batch in some)
    return rows


def _send_here(batches: list[pa.RecordBatch], destination: Destination) -> None:
    if isinstance(destination, LocalDestination):
        destination.accept(pa.Table.from_batches([destination.fit(batch) for batch in batches]))
        return
    batch_id = -time.time_ns() // 1000  # of no query's batches
    with destination.open(Lane(batch_id=batch_id)) as sender:
        for batch in batches:
            sender.send(destination.fit(batch))
        result = _complete(sender.finish())
    destination.learn(result.reports)
    destination.complete(batch_id, result.reports)


def ensure_all(destinations: Sequence[Destination], *, have_rows: bool = False) -> None:
    """Create or check what each destination needs, and say which one failed.

    `have_rows`: the pipeline has delivered to them before, so what is missing now was deleted, with all it held.
    """
    for destination in destinations:
        try:
            lost = destination.lost() if have_rows else None
            destination.ensure()
        except HeadgateError as error:
            raise error.at(f"destinations.{destination.name}") from None
        if lost:
            fields = {"destination": destination.name, "remedy": "give consumers of what it held new snapshots"}
            _log.error("the %s was deleted with all it held; it is made again, empty", lost, extra=fields)
