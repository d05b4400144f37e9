"""Sends admitted rows: those of a stream one after the other, streams side by side."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Destination, Lane, SendResult
from headgate.model import ConfigError, DataError, DeliveryError, HeadgateError, OccupiedError, StateError, record
from headgate.model.address import Address
from headgate.pipeline.acks import Moments
from headgate.pipeline.routing.admission import Reason
from headgate.pipeline.routing.job import Group, Job, Report, error_of
from headgate.pipeline.routing.refusals import Refusals
from headgate.pipeline.routing.router import Routed
from headgate.runtime.failpoints import failpoint

__all__ = ["Lanes"]

Bools: TypeAlias = npt.NDArray[np.bool_]

_NOT_CREATED = DeliveryError("the destination could not be created", remedy="see its last error in the status")


@dataclass(frozen=True, slots=True)
class _Load:
    """What one sender is given."""

    target: Destination
    stream: str
    batches: list[pa.RecordBatch]


class Lanes:
    """The sending side of one task."""

    def __init__(self, job: Job, report: Report, task: int) -> None:
        self._job = job
        self._report = report
        self._task = task
        # What follows a row that failed must not overtake it: the next attempt sends them in order.
        self._failed: set[Group] = set()
        self._moments: list[Moments] = []  # of each sender; several threads add to it

    def send(self, parts: Sequence[Routed], refusals: Refusals) -> None:
        """Send the rows of a round. All refusals come before the first row."""
        self._send_loads(
            [load for target in self._job.targets for load in self._loads(target, parts, refusals)], refusals
        )
        self._report.moments = Moments.around((self._report.moments, *self._moments))
        self._moments.clear()

    def _send_loads(self, loads: list[_Load], refusals: Refusals) -> None:
        threads = min(len(loads), self._job.admission.max_concurrent)
        if threads > 1:
            with ThreadPoolExecutor(threads, thread_name_prefix="lane") as pool:
                results = list(pool.map(self._send, loads))
            for load, result in zip(loads, results, strict=True):
                self._book(load, result, refusals)
            return
        for load in loads:
            rest = self._without_failed(load)
            if rest.batches:
                self._book(rest, self._send(rest), refusals)

    def _loads(self, target: Destination, parts: Sequence[Routed], refusals: Refusals) -> list[_Load]:
        in_order = [
            each
            for rows in parts
            for each in _by_stream(self._allowed(target, rows, refusals), runs=self._job.keeps_order)
        ]
        if self._job.keeps_order:
            return [_Load(target, stream, [batch]) for stream, batch in in_order]
        lanes: dict[str, list[pa.RecordBatch]] = {}
        for stream, batch in in_order:
            lanes.setdefault(stream, []).append(batch)
        return [_Load(target, stream, batches) for stream, batches in lanes.items()]

    def _allowed(self, target: Destination, rows: Routed, refusals: Refusals) -> Routed:
        """Rows for one configured destination: not those it has, nor those it must be left alone with."""
        keep = np.ones(len(rows.index), dtype=np.bool_)
        for number, wanted in enumerate(rows.wanted):
            of_it = rows.index == number
            if of_it.any():
                keep[of_it] = False
                rest = of_it & ~self._delivered(target, wanted, rows)
                keep |= self._allowed_of(target, wanted, rows.rows, of_it, rest, refusals)
        return rows.where(keep)

    def _delivered(self, target: Destination, wanted: Address, rows: Routed) -> Bools:
        """Rows that the destination has, or that it had by routes of before a reload."""
        task, group = self._task, (target.name, wanted.stream, wanted.topic)
        if (task, group) in self._job.done:
            return np.ones(len(rows.index), dtype=np.bool_)
        codes = [
            code
            for code, keys in enumerate(rows.keys)
            if any(earlier.has(task, target.name, wanted, keys) for earlier in self._job.earlier)
        ]
        return np.isin(rows.code, codes)

    def _allowed_of(
        self,
        target: Destination,
        wanted: Address,
        batch: pa.RecordBatch,
        of_it: Bools,
        rest: Bools,
        refusals: Refusals,
    ) -> Bools:
        """Which of the rows for one destination may be sent there; `rest` are those that it does not have.

        A partition that is not there is refused in every attempt: only what the last one says is kept.
        """
        known = self._job.known
        group = (target.name, wanted.stream, wanted.topic)
        nothing = np.zeros(len(of_it), dtype=np.bool_)
        if group in self._failed:
            return nothing
        partitions = known.partitions[wanted].get(target.name)
        beyond = _beyond(batch, partitions) & of_it if partitions else nothing
        refusals.refuse(batch.filter(pa.array(beyond)), wanted, Reason.PARTITION_OUT_OF_RANGE, target.name)
        rest = rest & ~beyond
        if not rest.any():
            return nothing
        if (target.name, wanted) in known.open:
            cause = known.causes.get((target.name, wanted), "")
            refusals.refuse(batch.filter(pa.array(rest)), wanted, Reason.CIRCUIT_OPEN, target.name, cause)
            return nothing
        if not partitions:
            self._fail(group, _NOT_CREATED)
            return nothing
        return rest

    def _without_failed(self, load: _Load) -> _Load:
        failed = [topic for name, stream, topic in self._failed if (name, stream) == (load.target.name, load.stream)]
        if not failed:
            return load
        names = pa.array(failed)
        rest = [batch.filter(pc.invert(pc.is_in(batch.column(record.TOPIC), names))) for batch in load.batches]
        return _Load(load.target, load.stream, [batch for batch in rest if batch.num_rows])

    def _send(self, load: _Load) -> SendResult | HeadgateError:
        partitions = {
            wanted.topic: counts.get(load.target.name, 1)
            for wanted, counts in self._job.known.partitions.items()
            if wanted.stream == load.stream
        }
        epoch = self._job.rules.epoch
        lane = Lane(
            load.stream or None, self._job.batch_id, self._task, epoch, partitions, goes_on=self._job.goes_on
        ).sharing(load.batches[0])
        began = time.time()
        try:
            with load.target.open(lane) as sender:
                for batch in load.batches:
                    sender.send(load.target.fit(batch))
                failpoint("sender.sending")
                sent = time.time()
                result = sender.finish()
            self._moments.append(Moments(began, sent, time.time()))
            return result
        except HeadgateError as error:
            return error.at(f"destinations.{load.target.name}")

    def _book(self, load: _Load, result: SendResult | HeadgateError, refusals: Refusals) -> None:
        name, stream = load.target.name, load.stream
        topics: Counter[str] = Counter()
        for batch in load.batches:
            for count in batch.column(record.TOPIC).value_counts().to_pylist():
                topics[count["values"]] += count["counts"]
        if isinstance(result, HeadgateError):
            failed = dict.fromkeys(topics, result)
        else:
            self._report.results.append(result)
            failed = {failure["topic"]: error_of(failure["error"]) for failure in result.failures}
        for topic, error in sorted(failed.items()):
            if self._buries(error):
                self._bury(_of_topic(load, topic), topic, error, refusals)
            else:
                self._fail((name, stream, topic), error)
        good = sorted((topic, rows) for topic, rows in topics.items() if topic not in failed)
        self._report.sent += [(self._task, name, stream, topic, rows) for topic, rows in good]

    def _buries(self, error: HeadgateError) -> bool:
        """Whether what a destination can never take is kept aside, instead of ending it all."""
        return self._job.on_refusal == "dlq" and isinstance(error, (ConfigError, DataError))

    def _bury(self, load: _Load, topic: str, error: HeadgateError, refusals: Refusals) -> None:
        """Refuse the rows of a topic that cannot be served, and send the others.

        Which rows those are is found by halves, in order. The topic does not count as sent: if the batch comes again,
        so do they, since dead letters are those of the last attempt.
        """
        rows = pa.Table.from_batches(load.batches).combine_chunks()
        if isinstance(error, ConfigError) or rows.num_rows == 1:
            wanted = Address(load.stream, topic)
            for batch in rows.to_batches():
                refusals.refuse(batch, wanted, Reason.UNSERVABLE, load.target.name, error.message)
            return
        middle = rows.num_rows // 2
        for part in (rows.slice(0, middle), rows.slice(middle)):
            half = _Load(load.target, load.stream, part.to_batches())
            result = self._send(half)
            found = result if isinstance(result, HeadgateError) else None
            if isinstance(result, SendResult):
                self._report.results.append(result)
                found = next((error_of(failure["error"]) for failure in result.failures), None)
            if found is None:
                continue
            if not self._buries(found):
                self._fail((load.target.name, load.stream, topic), found)
                return
            self._bury(half, topic, found, refusals)

    def _fail(self, group: Group, error: HeadgateError) -> None:
        """A row that no server would take, or another writer in our stream, ends it all: a breaker would hide it."""
        if isinstance(error, (ConfigError, DataError, OccupiedError, StateError)):
            raise error
        if group not in self._failed:
            self._failed.add(group)
            self._report.failed.append((*group, error.as_dict()))


def _of_topic(load: _Load, topic: str) -> _Load:
    batches = [batch.filter(pc.equal(batch.column(record.TOPIC), topic)) for batch in load.batches]
    return _Load(load.target, load.stream, [batch for batch in batches if batch.num_rows])


def _beyond(batch: pa.RecordBatch, partitions: int) -> Bools:
    """Rows that name a partition which is not there."""
    if record.PARTITION not in batch.schema.names:
        return np.zeros(batch.num_rows, dtype=np.bool_)
    ids = batch.column(record.PARTITION)
    inside = pc.fill_null(pc.and_(pc.greater_equal(ids, 0), pc.less(ids, partitions)), True)
    found: Bools = ~inside.to_numpy(zero_copy_only=False)
    return found


def _by_stream(rows: Routed, *, runs: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by stream, in order; with `runs`, a stream ends where another begins, so that nothing changes places."""
    names = sorted({target.stream for target in rows.wanted})
    number = np.array([names.index(target.stream) for target in rows.wanted], dtype=np.int64)
    of_row = number[rows.index] if len(rows.index) else np.zeros(0, dtype=np.int64)
    if runs:
        edges = np.flatnonzero(np.diff(of_row)) + 1
        for start, stop in zip([0, *edges], [*edges, len(of_row)], strict=True):
            if stop > start:
                yield names[of_row[start]], rows.rows.slice(start, stop - start)
        return
    for each, name in enumerate(names):
        of_it = of_row == each
        if of_it.all() and len(of_it):
            yield name, rows.rows
        elif of_it.any():
            yield name, rows.rows.filter(pa.array(of_it))
