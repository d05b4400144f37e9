"""A job and its report: what travels to the executors with the rows of a batch, and what comes back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from headgate.destinations.base import Destination, SendResult
from headgate.model import HeadgateError, InternalError
from headgate.model.address import Address
from headgate.pipeline.acks import Acks, Moments
from headgate.pipeline.routing.admission import Admission
from headgate.pipeline.routing.rules import Keys, Rules
from headgate.pipeline.routing.table import Known

__all__ = ["Action", "Earlier", "Group", "Job", "Report", "error_of"]

Action = Literal["drop", "error", "dlq"]
_MOST_ENTRIES = 10_000  # of a report, before they are summed up
_MOST_SAMPLES = 20

Group = tuple[str, str, str]  # configured destination, stream, topic


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was acknowledged in a batch while it was routed by rules that a reload has replaced."""

    rules: Rules
    done: frozenset[tuple[int, Group]]  # (task, group)

    def has(self, task: int, name: str, wanted: Address, keys: Keys) -> bool:
        """Whether a row of these values needs not go there: it is there, or was delivered wherever it had to go."""
        given = self.rules.choose(keys).destinations
        there = {each for each in given if (task, (name, each.stream, each.topic)) in self.done}
        return wanted in there or (bool(given) and len(there) == len(given))


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a task is given: rules, what is known of destinations, and what it need not send again."""

    targets: tuple[Destination, ...]
    rules: Rules
    admission: Admission
    known: Known
    on_missing: Action
    on_refusal: Action
    batch_id: int = 0
    done: frozenset[tuple[int, Group]] = frozenset()  # (task, group)
    earlier: tuple[Earlier, ...] = ()
    goes_on: bool = False  # right behind what this task has sent before
    echo: bool = False  # hand the rows back, for destinations on the driver

    @property
    def keeps_order(self) -> bool:
        """Whether rows of different streams must not overtake one another."""
        return self.admission.max_concurrent == 1


class Report(msgspec.Struct):
    """What became of the rows of a task, of a part of it, or of all tasks of a job: reports add up."""

    rows: int = 0
    unknown: list[tuple[str, str]] = []  # stream and topic that the driver must admit first
    refused: dict[str, int] = {}  # by reason
    missing: int = 0
    absent: int = 0
    defaulted: int = 0
    sent: list[tuple[int, str, str, str, int]] = []  # task, group, rows
    failed: list[tuple[str, str, str, dict[str, str]]] = []  # group, error
    results: list[SendResult] = []
    samples: list[str] = []  # values that no rule knows
    end: dict[str, Any] | None = None  # how far a task that followed its source has come
    acks: Acks = msgspec.field(default_factory=Acks)
    moments: Moments | None = None

    def add(self, other: Report) -> None:
        """Take in what became of further rows."""
        self.rows += other.rows
        self.unknown = sorted({*self.unknown, *other.unknown})
        self.refused = dict(Counter(self.refused) + Counter(other.refused))
        self.missing += other.missing
        self.absent += other.absent
        self.defaulted += other.defaulted
        self.sent = self.sent + other.sent
        self.failed = self.failed + other.failed
        self.results = self.results + other.results
        self.samples = (self.samples + other.samples)[-_MOST_SAMPLES:]
        self.end = other.end or self.end
        self.acks.add(other.acks)
        self.moments = Moments.around((self.moments, other.moments))
        if len(self.sent) + len(self.results) > _MOST_ENTRIES:
            self._sum_up()

    def _sum_up(self) -> None:
        rows: Counter[tuple[int, str, str, str]] = Counter()
        for *group, count in self.sent:
            rows[tuple(group)] += count  # type: ignore[index]
        self.sent = [(*group, count) for group, count in rows.items()]
        results: dict[str, SendResult] = {}
        for each in self.results:
            known = results.get(each.destination)
            results[each.destination] = each if known is None else known.plus(each)
        self.results = list(results.values())

    def close(self) -> None:
        """A group is sent only if none of its rows failed: the next attempt sends all of it again."""
        failed = {each[:3] for each in self.failed}
        self.sent = [each for each in self.sent if each[1:4] not in failed]


def error_of(fields: Mapping[str, str]) -> HeadgateError:
    """An error that came as JSON."""
    found = HeadgateError.from_text(f"headgate-error: {json.dumps(fields)}")
    return found or InternalError("an error that nobody can read", remedy="report it")
