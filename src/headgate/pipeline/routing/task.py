"""What an executor does with the rows of one task: route them, check all, then send each stream's rows side by side.

Rows are checked in rounds: all of a round before any of it is sent. A round is all rows of the task, unless they are
more than `ROUND_BYTES`, as those of a very large transaction may be.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Destination as Target
from headgate.destinations.base import Lane, SendResult
from headgate.model import (
    ConfigError,
    DataError,
    DeliveryError,
    HeadgateError,
    InternalError,
    OccupiedError,
    StateError,
    record,
)
from headgate.model.destination import Destination
from headgate.model.failpoints import failpoint
from headgate.pipeline.routing.admission import Admission, Reason
from headgate.pipeline.routing.router import Indices, Routed, Router, key_columns
from headgate.pipeline.routing.rules import Rules
from headgate.pipeline.routing.table import Known

__all__ = ["DEAD_SCHEMA", "Plan", "TaskReport", "run_task"]

ROUND_BYTES = 128 << 20
_SAMPLES = 5

Action = Literal["drop", "error", "dlq"]
Group = tuple[str, str, str]  # configured destination, stream, topic

DEAD_SCHEMA = pa.schema(
    [
        ("destination", pa.string()),
        (record.STREAM, pa.string()),
        (record.TOPIC, pa.string()),
        ("reason", pa.string()),
        (record.MESSAGE_ID, pa.string()),
        (record.PARTITION_KEY, pa.binary()),
        (record.PARTITION, pa.int64()),
        (record.PAYLOAD, pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a task is given: rules, what is known of destinations, and what it need not send again."""

    targets: tuple[Target, ...]
    rules: Rules
    admission: Admission
    known: Known
    on_missing: Action
    on_refusal: Action
    batch_id: int = 0
    done: frozenset[tuple[int, Group]] = frozenset()  # (task, group)
    echo: bool = False  # hand the rows back, for destinations on the driver


@dataclass(slots=True)
class TaskReport:
    """What a task says at its end; plain JSON on its way to the driver."""

    task: int
    rows: int = 0
    unknown: list[tuple[str, str]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    missing: int = 0
    absent: int = 0
    sent: list[tuple[str, str, str, int]] = field(default_factory=list)  # group, rows
    failed: list[tuple[str, str, str, dict[str, str]]] = field(default_factory=list)  # group, error
    results: list[dict[str, Any]] = field(default_factory=list)  # SendResult
    samples: list[str] = field(default_factory=list)  # values that no rule knows

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"refused": dict(self.refused)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> TaskReport:
        pairs = {
            "unknown": [(stream, topic) for stream, topic in fields["unknown"]],
            "sent": [(name, stream, topic, rows) for name, stream, topic, rows in fields["sent"]],
            "failed": [(name, stream, topic, error) for name, stream, topic, error in fields["failed"]],
            "refused": Counter(fields["refused"]),
        }
        return cls(**{**fields, **pairs})


def run_task(
    plan: Plan, batches: Iterator[pa.RecordBatch], task: int
) -> Iterator[tuple[Literal["row", "dead"], pa.RecordBatch] | TaskReport]:
    """Route and send. Yields rows for the driver, dead letters, and last what became of everything."""
    run = _Task(plan, task)
    for rows in _rounds(batches):
        yield from run.round(rows)
        if run.report.unknown:
            break  # the driver admits them first, and the batch comes again
    run.report.unknown = sorted(set(run.report.unknown))
    yield run.report


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

    def __init__(self, plan: Plan, task: int) -> None:
        self._plan = plan
        self._router = Router(plan.rules)
        self.report = TaskReport(task)

    def round(self, batches: list[pa.RecordBatch]) -> Iterator[tuple[Literal["row", "dead"], pa.RecordBatch]]:
        routed = [self._router.route(batch) for batch in batches]
        self.report.rows += sum(batch.num_rows for batch in batches)
        self._look_for_unknown(routed)
        if self.report.unknown:
            return
        dead: list[pa.RecordBatch] = []
        parts = [self._admitted(each, dead) for each in routed]
        if self._plan.echo:
            yield from (("row", _with_streams(rows, wanted, index)) for rows, wanted, index in parts if rows.num_rows)
        self._send(parts, dead)
        yield from (("dead", batch) for batch in dead if batch.num_rows)

    def _look_for_unknown(self, routed: Sequence[Routed]) -> None:
        """Destinations that the driver must admit before anything is sent."""
        known = self._plan.known
        if known.is_full:
            return
        for wanted in {target for each in routed for target in each.wanted}:
            if wanted not in known.partitions and self._plan.admission.refusal(wanted) is None:
                self.report.unknown.append((wanted.stream, wanted.topic))

    def _admitted(
        self, routed: Routed, dead: list[pa.RecordBatch]
    ) -> tuple[pa.RecordBatch, tuple[Destination, ...], Indices]:
        """The rows that may have what they want; the rest is dropped, dead or an error."""
        self.report.absent += routed.absent
        if routed.missing.num_rows:
            self._missing(routed.missing, dead)
        rows, index = routed.rows, routed.index
        for number, wanted in enumerate(routed.wanted):
            reason = self._refusal(wanted)
            if reason is not None:
                of_it = index == number
                self._refuse(rows.filter(pa.array(of_it)), "", wanted, reason, dead)
                rows, index = rows.filter(pa.array(~of_it)), index[~of_it]
        return rows, routed.wanted, index

    def _refusal(self, wanted: Destination) -> Reason | None:
        refused = self._plan.admission.refusal(wanted)
        if refused is None and wanted not in self._plan.known.partitions:
            return Reason.CAP
        return refused

    def _missing(self, rows: pa.RecordBatch, dead: list[pa.RecordBatch]) -> None:
        rows = _without_descriptions(rows)
        if not rows.num_rows:
            return
        self.report.missing += rows.num_rows
        names = [name for name in key_columns(self._plan.rules) if name in rows.schema.names]
        examples = rows.select(names).slice(0, _SAMPLES).to_pylist()
        self.report.samples = sorted({"/".join(str(value) for value in row.values()) for row in examples})
        action = self._plan.on_missing
        if action == "error":
            raise DeliveryError(
                f"{rows.num_rows} rows have no destination, such as message {rows.column(record.MESSAGE_ID)[0]}",
                remedy="add a route or a default, or set admission.on_missing_destination to drop or dlq",
            )
        if action == "dlq":
            dead.append(_dead(rows, "", Destination("", ""), Reason.MISSING))

    def _refuse(
        self, rows: pa.RecordBatch, name: str, wanted: Destination, reason: Reason, dead: list[pa.RecordBatch]
    ) -> None:
        if not rows.num_rows:
            return
        action = self._plan.on_refusal
        if action == "error":
            raise refused_error(wanted, reason, rows.num_rows)
        self.report.refused[reason.value] += rows.num_rows
        if action == "dlq":
            dead.append(_dead(rows, name, wanted, reason))

    def _send(
        self,
        parts: Sequence[tuple[pa.RecordBatch, tuple[Destination, ...], Indices]],
        dead: list[pa.RecordBatch],
    ) -> None:
        work: list[tuple[Target, str, list[pa.RecordBatch]]] = []
        for target in self._plan.targets:
            lanes: dict[str, list[pa.RecordBatch]] = {}
            in_order: list[tuple[str, pa.RecordBatch]] = []
            for rows, wanted, index in parts:
                allowed, kept = self._allowed(target, rows, wanted, index, dead)
                in_order += _by_stream(allowed, wanted, kept, runs=self._plan.admission.max_concurrent == 1)
            if self._plan.admission.max_concurrent == 1:
                work += [(target, stream, [batch]) for stream, batch in in_order]
                continue
            for stream, batch in in_order:
                lanes.setdefault(stream, []).append(batch)
            work += [(target, stream, batches) for stream, batches in lanes.items()]
        threads = min(len(work), self._plan.admission.max_concurrent)
        if threads <= 1:
            results = [self._send_lane(*each) for each in work]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="lane") as pool:
                results = list(pool.map(lambda each: self._send_lane(*each), work))
        for (target, stream, batches), result in zip(work, results, strict=True):
            self._book(target.name, stream, batches, result)

    def _allowed(
        self,
        target: Target,
        rows: pa.RecordBatch,
        wanted: tuple[Destination, ...],
        index: Indices,
        dead: list[pa.RecordBatch],
    ) -> tuple[pa.RecordBatch, Indices]:
        """Rows for one configured destination: not those it has, nor those it must be left alone with."""
        known, plan = self._plan.known, self._plan
        keep = np.ones(len(index), dtype=np.bool_)
        for number, each in enumerate(wanted):
            of_it = index == number
            if not of_it.any():
                continue
            if (self.report.task, (target.name, each.stream, each.topic)) in plan.done:
                keep &= ~of_it
            elif (target.name, each) in known.open:
                self._refuse(rows.filter(pa.array(of_it)), target.name, each, Reason.CIRCUIT_OPEN, dead)
                keep &= ~of_it
            elif not known.partitions[each].get(target.name):
                error = DeliveryError("the destination could not be created", where=f"destinations.{target.name}")
                self.report.failed.append((target.name, each.stream, each.topic, error.as_dict()))
                keep &= ~of_it
            elif record.PARTITION in rows.schema.names:
                ids = rows.column(record.PARTITION)
                inside = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, known.partitions[each][target.name]))
                beyond = of_it & ~pc.fill_null(inside, True).to_numpy(zero_copy_only=False)
                beyond_rows = rows.filter(pa.array(beyond))
                self._refuse(beyond_rows, target.name, each, Reason.PARTITION_OUT_OF_RANGE, dead)
                keep &= ~beyond
        if keep.all():
            return rows, index
        return rows.filter(pa.array(keep)), index[keep]

    def _send_lane(self, target: Target, stream: str, batches: list[pa.RecordBatch]) -> SendResult | HeadgateError:
        partitions = {
            wanted.topic: counts.get(target.name, 1)
            for wanted, counts in self._plan.known.partitions.items()
            if wanted.stream == stream
        }
        lane = Lane(stream or None, self._plan.batch_id, self.report.task, self._plan.rules.epoch, partitions)
        try:
            with target.open(lane) as sender:
                for batch in batches:
                    sender.send(batch)
                failpoint("sender.sending")
                return sender.finish()
        except HeadgateError as error:
            return error.at(f"destinations.{target.name}")

    def _book(self, name: str, stream: str, batches: list[pa.RecordBatch], result: SendResult | HeadgateError) -> None:
        topics: Counter[str] = Counter()
        for batch in batches:
            for count in batch.column(record.TOPIC).value_counts().to_pylist():
                topics[count["values"]] += count["counts"]
        if isinstance(result, HeadgateError):
            if _is_final(result):
                raise result
            self.report.failed += [(name, stream, topic, result.as_dict()) for topic in sorted(topics)]
            return
        self.report.results.append(result.as_dict())
        failed = {failure["topic"]: failure for failure in result.failures}
        for failure in failed.values():
            error = error_of(failure["error"])
            if _is_final(error):
                raise error
        self.report.failed += [(name, stream, topic, failed[topic]["error"]) for topic in sorted(failed)]
        self.report.sent += [
            (name, stream, topic, rows) for topic, rows in sorted(topics.items()) if topic not in failed
        ]


def _without_descriptions(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without events that describe a table: they are no rows, and are in the bucket of schemas as well."""
    if record.OP not in rows.schema.names:
        return rows
    return rows.filter(pc.fill_null(pc.not_equal(rows.column(record.OP), "schema"), True))


def _is_final(error: HeadgateError) -> bool:
    """A row that no server would take, or another writer in our stream: a breaker would only hide it."""
    return isinstance(error, (ConfigError, DataError, OccupiedError, StateError))


def error_of(fields: Mapping[str, str]) -> HeadgateError:
    """An error that came as JSON."""
    found = HeadgateError.from_text(f"headgate-error: {json.dumps(fields)}")
    return found or InternalError("an error that nobody can read", remedy="report it")


def refused_error(wanted: Destination, reason: Reason, rows: int) -> DeliveryError:
    """What the user reads when refused rows are an error."""
    remedies = {
        Reason.CAP: "raise admission.max_destinations",
        Reason.DENYLIST: "take it off the denylist",
        Reason.UNKNOWN: "add it to the allowlist",
        Reason.CIRCUIT_OPEN: "mend the destination; it is tried again after the cool-down",
        Reason.PARTITION_OUT_OF_RANGE: "correct the rows, or give the topic more partitions",
    }
    return DeliveryError(
        f"{rows} rows may not go to {wanted}: {reason.value}",
        remedy=f"{remedies.get(reason, '')}; or set admission.on_admission_failure to drop or dlq",
    )


def _by_stream(
    rows: pa.RecordBatch, wanted: tuple[Destination, ...], index: Indices, *, runs: bool
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by stream, in order; with `runs`, a stream ends where another begins, so that nothing changes places."""
    names = sorted({target.stream for target in wanted})
    number = np.array([names.index(target.stream) for target in wanted], dtype=np.int64)
    of_row = number[index] if len(index) else np.zeros(0, dtype=np.int64)
    if runs:
        edges = np.flatnonzero(np.diff(of_row)) + 1
        for start, stop in zip([0, *edges], [*edges, len(of_row)], strict=True):
            if stop > start:
                yield names[of_row[start]], rows.slice(start, stop - start)
        return
    for each, name in enumerate(names):
        of_it = of_row == each
        if of_it.all() and len(of_it):
            yield name, rows
        elif of_it.any():
            yield name, rows.filter(pa.array(of_it))


def _with_streams(rows: pa.RecordBatch, wanted: tuple[Destination, ...], index: Indices) -> pa.RecordBatch:
    streams = pa.array([target.stream or None for target in wanted], pa.string()).take(pa.array(index))
    return pa.RecordBatch.from_arrays([*rows.columns, streams], names=[*rows.schema.names, record.STREAM])


def _dead(rows: pa.RecordBatch, name: str, wanted: Destination, reason: Reason) -> pa.RecordBatch:
    count = rows.num_rows

    def given(column: str, kind: pa.DataType) -> pa.Array:
        return rows.column(column).cast(kind) if column in rows.schema.names else pa.nulls(count, kind)

    columns = [
        pa.array([name] * count, pa.string()),
        pa.array([wanted.stream] * count, pa.string()),
        pa.array([wanted.topic] * count, pa.string()),
        pa.array([reason.value] * count, pa.string()),
        rows.column(record.MESSAGE_ID).cast(pa.string()),
        given(record.PARTITION_KEY, pa.binary()),
        given(record.PARTITION, pa.int64()),
        rows.column(record.PAYLOAD).cast(pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)
