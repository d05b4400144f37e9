"""Routing while a pipeline runs: its rules, its destinations, its counts. Outlives the runs of the query.

A batch is delivered in attempts. Each is one Spark job; what a destination has acknowledged is not sent again in the
next one, and rows for destinations that nobody has seen yet send nothing but their names, so that those are admitted
and created before the first row.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.destinations.base import Destination, LocalDestination, SendResult
from headgate.model import DataError, DeliveryError, record
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
from headgate.pipeline.dispatch import BatchResult
from headgate.pipeline.routing.epochs import EpochFile
from headgate.pipeline.routing.job import Earlier, Group, Job, error_of
from headgate.pipeline.routing.rules import Rules
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.pipeline.routing.spark_job import Followed, Outcome, run_job
from headgate.pipeline.routing.table import DestinationTable
from headgate.sources.base import MakeRows
from headgate.spool.dead_letters import DeadLetters

__all__ = ["Routing", "RoutingCounts"]

_ADMISSION_ROUNDS = 64  # attempts of a batch that only make destinations known
_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class RoutingCounts:
    """Totals since the start of the process."""

    routed: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    unmatched: Counter[str] = field(default_factory=Counter)  # by what was done
    absent: int = 0  # changes that did not carry a routing column
    dead_letters: int = 0


@dataclass(slots=True)
class _Progress:
    """How far one batch has come over its attempts. What is acknowledged stays so when the routes change."""

    batch_id: int
    rules: Rules
    done: set[tuple[int, Group]] = field(default_factory=set)  # by these rules
    earlier: tuple[Earlier, ...] = ()  # by those before a reload
    results: list[SendResult] = field(default_factory=list)

    def go_on_with(self, rules: Rules) -> None:
        if rules.epoch != self.rules.epoch:
            self.earlier += (Earlier(self.rules, frozenset(self.done)),)
            self.rules, self.done = rules, set()


class Routing:
    """The routing of one pipeline."""

    def __init__(
        self,
        settings: RoutingSettings,
        targets: Sequence[Destination],
        dead_letters: DeadLetters,
        *,
        pipeline: str,
        directory: Path,
        first_batch: int = 0,
    ) -> None:
        self._epochs = EpochFile(directory / "routes.json")
        self.settings = settings
        self.dead_letters = dead_letters
        self.counts = RoutingCounts()
        self.unmatched_samples: deque[str] = deque(maxlen=_SAMPLES)
        self._targets = tuple(targets)
        self._pipeline = pipeline
        self._first_batch = first_batch  # destinations know a batch by this and its number
        self._lock = threading.Lock()
        self._progress = _Progress(-1, self.settings.rules)
        self.table = DestinationTable(
            self._targets,
            settings.admission,
            defaults=settings.defaults,
            failure_threshold=settings.breaker_threshold,
            cool_down_s=settings.breaker_cool_down_s,
        )

    @property
    def epoch(self) -> int:
        return self.settings.rules.epoch

    def start(self) -> None:
        """Find the routes' epoch, and create what the allowlist names, within its deadline."""
        with self._lock:
            self.settings = replace(self.settings, rules=self._epochs.number(self.settings.rules))
        if self.settings.literal:
            self.table.prewarm(self.settings.literal, self.settings.prewarm_deadline_s)

    def reload(self, settings: RoutingSettings) -> int:
        """Use other rules from the next attempt on; returns their epoch, a new one if the routes are."""
        with self._lock:
            self.settings = replace(settings, rules=self._epochs.number(settings.rules))
            self.table.configure(
                settings.admission, settings.defaults, settings.breaker_threshold, settings.breaker_cool_down_s
            )
            return self.epoch

    def deliver(
        self,
        frame: DataFrame,
        rows: MakeRows | None,
        batch_id: int,
        origin: str,
        followed: Followed | None = None,
    ) -> BatchResult:
        """One attempt at a batch, or several if it brings new destinations. Raises if anything is not delivered."""
        with self._lock:
            settings = self.settings  # a reload during this attempt is for the next one
        if self._progress.batch_id != batch_id:
            self._progress = _Progress(batch_id, settings.rules)
        self._progress.go_on_with(settings.rules)
        outcome = self._attempt(frame, rows, settings, followed)
        self._book(outcome)
        self._check(outcome)
        self._finish(outcome, settings, origin)
        return self._result(outcome)

    def _attempt(
        self, frame: DataFrame, rows: MakeRows | None, settings: RoutingSettings, followed: Followed | None
    ) -> Outcome:
        for _ in range(_ADMISSION_ROUNDS):
            outcome = run_job(frame, self._job(settings), rows, followed)
            if not outcome.report.unknown:
                return outcome
            self.table.admit(Address(*each) for each in outcome.report.unknown)
        raise DataError(
            "a batch names new destinations without end",
            where=f"pipelines.{self._pipeline}.routing",
            remedy="set admission.max_destinations or an allowlist",
        )

    def _job(self, settings: RoutingSettings) -> Job:
        known = self.table.known()
        missing = [each for each, names in known.partitions.items() if not all(names.values())]
        if missing:
            self.table.ensure(missing)
            known = self.table.known()
        return Job(
            targets=tuple(target for target in self._targets if not isinstance(target, LocalDestination)),
            rules=settings.rules,
            admission=settings.admission,
            known=known,
            on_missing=settings.on_missing,
            on_refusal=settings.on_refusal,
            batch_id=self._first_batch + self._progress.batch_id,
            done=frozenset(self._progress.done),
            earlier=self._progress.earlier,
            echo=any(isinstance(target, LocalDestination) for target in self._targets),
        )

    def _book(self, outcome: Outcome) -> None:
        """What is acknowledged stays so, whatever else failed."""
        progress = self._progress
        for task, name, stream, topic, rows in outcome.report.sent:
            progress.done.add((task, (name, stream, topic)))
            self.table.succeeded(name, Address(stream, topic), rows)
        told: set[Group] = set()
        for name, stream, topic, error in outcome.report.failed:
            # A destination that could not be created has been told already.
            if (name, stream, topic) not in told and self.table.is_created(name, Address(stream, topic)):
                told.add((name, stream, topic))
                self.table.failed(name, Address(stream, topic), error_of(error))
        progress.results += outcome.report.results

    def _check(self, outcome: Outcome) -> None:
        """One failed destination fails the batch; the next attempt sends only what is left."""
        if not outcome.report.failed:
            return
        name, stream, topic, told = outcome.report.failed[0]
        error = self.table.creation_error(name, Address(stream, topic)) or error_of(told)
        groups = {(each[0], each[1], each[2]) for each in outcome.report.failed}
        more = f" (and {len(groups) - 1} more destinations)" if len(groups) > 1 else ""
        cls = type(error) if error.retry.value == "backoff" else DeliveryError
        raise cls(
            f"{Address(stream, topic)}: {error.message}{more}",
            where=error.where or f"destinations.{name}",
            remedy=error.remedy,
        )

    def _finish(self, outcome: Outcome, settings: RoutingSettings, origin: str) -> None:
        """Everything that must have happened before the batch counts as delivered."""
        batch_id = self._progress.batch_id
        letters = [_letter(row, batch_id, settings.rules.epoch, origin) for row in outcome.dead.to_pylist()]
        new = self.dead_letters.add(letters) if letters else 0
        for target in self._targets:
            of_it = [told for r in self._progress.results if r.destination == target.name for told in r.reports]
            target.learn(of_it)
            target.complete(self._first_batch + batch_id, of_it)
            if isinstance(target, LocalDestination):
                target.accept(outcome.rows)
        counts, report, action = self.counts, outcome.report, settings.on_missing
        self.unmatched_samples.extend(report.samples)
        self.counts = RoutingCounts(
            routed=counts.routed + sum(result.rows for result in self._progress.results) + outcome.rows.num_rows,
            refused=counts.refused + Counter(report.refused),
            unmatched=counts.unmatched + Counter({action: report.missing}) + Counter(default=report.defaulted),
            absent=counts.absent + report.absent,
            dead_letters=counts.dead_letters + new,
        )

    def _result(self, outcome: Outcome) -> BatchResult:
        results = self._progress.results
        local_bytes = pc.sum(pc.binary_length(outcome.rows.column(record.PAYLOAD))).as_py() or 0
        self._progress = _Progress(-1, self._progress.rules)
        return BatchResult(
            rows=outcome.report.rows,
            payload_bytes=sum(result.payload_bytes for result in results) + local_bytes,
            duplicates=sum(result.duplicates for result in results),
            end=outcome.report.end,
            acks=outcome.report.acks,
            moments=outcome.report.moments,
        )

    def describe(self) -> dict[str, Any]:
        """For the status."""
        counts = self.counts
        return {
            "epoch": self.epoch,
            "destinations_active": self.table.active,
            "circuits_open": self.table.open_circuits,
            "routed_total": counts.routed,
            "refused_total": dict(counts.refused),
            "unmatched_total": dict(counts.unmatched),
            "absent_total": counts.absent,
            "dead_letters_total": counts.dead_letters,
            "unmatched_samples": list(self.unmatched_samples),
            "create_seconds": self.table.create_seconds(),
        }


def _letter(row: dict[str, Any], batch_id: int, epoch: int, origin: str) -> DeadLetter:
    message_id = row[record.MESSAGE_ID]
    return DeadLetter(
        message_id=message_id,
        destination=row["destination"],
        wanted=Address(row[record.STREAM], row[record.TOPIC]),
        reason=row["reason"],
        position=message_id.removeprefix(f"{origin}-"),
        payload=row[record.PAYLOAD],
        error=row["error"] or "",
        partition_key=row[record.PARTITION_KEY],
        partition=row[record.PARTITION],
        epoch=epoch,
        batch_id=batch_id,
        at=time.time(),
    )
