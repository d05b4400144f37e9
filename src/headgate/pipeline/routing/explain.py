"""Says of sample rows where they would go and why, without sending them: by the sender's own code, with destinations
that only take note.

The rows come as the pipeline itself makes them, with the values that routes look at beside them (`sampling`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headgate.destinations.base import OWN_LANE, Destination, Lane, LocalDestination, Sender, SendResult, TopicDefaults
from headgate.model import ConnectError, HeadgateError, record
from headgate.model.address import Address
from headgate.pipeline.routing.job import Job, Report
from headgate.pipeline.routing.router import KEY, KEY_STREAM, KEY_TOPIC, Router, key_bytes, key_number, lookup_column
from headgate.pipeline.routing.rules import Choice
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.pipeline.routing.table import DestinationTable
from headgate.pipeline.routing.task import run_task

__all__ = ["ORIGIN", "Explanation", "Verdict", "explain_batch", "sample_id"]

ORIGIN = "sample"  # of the message ids of sample rows


def sample_id(number: int) -> str:
    """The position of a sample row."""
    return f"{number:08d}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of a row at one of the destinations it wants."""

    destination: str
    partition: str
    admission: str  # `admitted`, or the reason and what happens then
    creates: tuple[str, ...] = ()  # what would have to be made first

    def as_dict(self) -> dict[str, Any]:
        return {
            "destination": self.destination,
            "partition": self.partition,
            "admission": self.admission,
            "creates": list(self.creates),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row's way."""

    row: dict[str, Any]
    rule: str
    looked_at: dict[str, str | None]
    verdicts: tuple[Verdict, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "looked_at": self.looked_at,
            "rule": self.rule,
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "note": self.note,
        }


class _Notes(Sender):
    """Takes rows and keeps their ids."""

    def __init__(self, target: Rehearsed, lane: Lane) -> None:
        self._target = target
        self._stream = lane.stream or ""
        self._rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        pairs = zip(batch.column(record.TOPIC).to_pylist(), batch.column(record.MESSAGE_ID).to_pylist(), strict=True)
        self._target.taken.update((_number(message_id), Address(self._stream, topic)) for topic, message_id in pairs)

    def finish(self) -> SendResult:
        return SendResult(self._target.name, self._rows, 0)


@dataclass(slots=True)
class Rehearsed(Destination):
    """A destination that is asked what it has, and is sent nothing."""

    real: Destination
    name: str = ""
    taken: set[tuple[int, Address]] = field(default_factory=set)
    creates: dict[Address, str] = field(default_factory=dict)
    away: HeadgateError | None = None

    def __post_init__(self) -> None:
        self.name = self.real.name

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        """What it would have to make is noted; what it could not make is raised."""
        wanted = Address(stream or "", topic)
        if self.away is None:
            try:
                missing = self.real.missing(stream, topic)
                if missing:
                    self.creates[wanted] = missing
                return self.real.partition_count(stream, topic, defaults)
            except ConnectError as error:
                self.away = error
        self.creates[wanted] = f"unknown, {self.away.message}"
        return defaults.partitions

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        yield _Notes(self, lane)


def explain_batch(
    rows: Sequence[dict[str, Any]],
    made: pa.RecordBatch,
    settings: RoutingSettings,
    targets: Sequence[Destination] = (),
    table: DestinationTable | None = None,
) -> list[Explanation]:
    """What would become of all these rows as one batch. `made` are the same as the router takes them, which may be
    fewer or more; `table` is that of the running pipeline."""
    rehearsal = _Rehearsal(settings, targets, table)
    rehearsal.run(made)
    choices = Router(settings.rules).choices(made)
    made_of: dict[int, list[int]] = {}
    for at, message_id in enumerate(made.column(record.MESSAGE_ID).to_pylist()):
        made_of.setdefault(_number(message_id), []).append(at)
    explained = []
    for number, row in enumerate(rows):
        places = made_of.get(number, [])
        if not places:
            explained.append(Explanation(dict(row), "none", {}, (), "the transforms leave the row out"))
            continue
        values = made.slice(places[0], 1).to_pylist()[0]
        explained.append(_explanation(row, number, [choices[at] for at in places], values, rehearsal))
    return explained


class _Rehearsal:
    """One batch, as the pipeline would deliver it."""

    def __init__(
        self, settings: RoutingSettings, targets: Sequence[Destination], table: DestinationTable | None
    ) -> None:
        self.settings = settings
        self.targets = [Rehearsed(target) for target in targets]
        self._remote = [each for each in self.targets if not isinstance(each.real, LocalDestination)]
        self.local = [each for each in self.targets if isinstance(each.real, LocalDestination)]
        self.table = table.rehearsed(self.targets) if table else self._new_table()
        self.refused: dict[tuple[int, Address], dict[str, str]] = {}  # by destination; the empty name is all of them
        self.failed: dict[tuple[str, Address], str] = {}

    def _new_table(self) -> DestinationTable:
        settings = self.settings
        return DestinationTable(self.targets, settings.admission, defaults=settings.defaults)

    def run(self, made: pa.RecordBatch) -> None:
        while True:
            job = self._job()
            dead, report = self._attempt(job, made)
            if not report.unknown:
                break
            self.table.admit(Address(*each) for each in report.unknown)
        for row in dead:
            key = (_number(row[record.MESSAGE_ID]), Address(row[record.STREAM], row[record.TOPIC]))
            self.refused.setdefault(key, {})[row["destination"]] = row["reason"]
        for name, stream, topic, _ in report.failed:
            wanted = Address(stream, topic)
            error = self.table.creation_error(name, wanted)
            self.failed[name, wanted] = error.message if error else "it cannot be created"

    def _job(self) -> Job:
        known = self.table.known()
        self.table.ensure([each for each, names in known.partitions.items() if not all(names.values())])
        # Whatever becomes of refused rows, here they come back with their reason.
        return Job(
            targets=tuple(self._remote),
            rules=self.settings.rules,
            admission=replace(self.settings.admission, max_concurrent=1),
            known=self.table.known(),
            on_missing="dlq",
            on_refusal="dlq",
            echo=bool(self.local),
        )

    def _attempt(self, job: Job, made: pa.RecordBatch) -> tuple[list[dict[str, Any]], Report]:
        dead: list[dict[str, Any]] = []
        for each in run_task(job, iter([made]), 0):
            if isinstance(each, Report):
                return dead, each
            kind, batch = each
            if kind == "dead":
                dead += batch.to_pylist()
                continue
            for row in batch.to_pylist():
                wanted = Address(row[record.STREAM] or "", row[record.TOPIC])
                for target in self.local:
                    target.taken.add((_number(row[record.MESSAGE_ID]), wanted))
        raise AssertionError("a task ends with its report")

    def verdict(self, number: int, wanted: Address, key: str | None) -> Verdict:
        counts = self.table.known().partitions.get(wanted, {})
        count = max(counts.values(), default=0) or self.settings.defaults.partitions
        creates = [f"{each.name}: {each.creates[wanted]}" for each in self.targets if wanted in each.creates]
        admission = self._admission(number, wanted)
        return Verdict(
            str(wanted) if wanted.stream else wanted.topic,
            _partition(key, count, self.settings),
            admission,
            tuple(creates) if admission.startswith("admitted") else (),
        )

    def _admission(self, number: int, wanted: Address) -> str:
        action = self.settings.on_refusal
        reasons = self.refused.get((number, wanted), {})
        if "" in reasons:
            return f"refused: {reasons['']} -> {action}"
        told = [(name, f"refused: {reason} -> {action}") for name, reason in reasons.items()]
        told += [(name, f"fails: {why}") for (name, failing), why in self.failed.items() if failing == wanted]
        if not told:
            return "admitted"
        taken = [each.name for each in self.targets if (number, wanted) in each.taken]
        if len(told) == 1 and not taken:
            return told[0][1]
        return "; ".join([*(["admitted"] if taken else []), *(f"{name}: {what}" for name, what in sorted(told))])


def _explanation(
    row: dict[str, Any], number: int, choices: list[Choice], values: dict[str, Any], rehearsal: _Rehearsal
) -> Explanation:
    settings = rehearsal.settings
    wanted = sorted({each for choice in choices for each in choice.destinations})
    verdicts = tuple(rehearsal.verdict(number, each, values.get(KEY)) for each in wanted)
    note = "" if verdicts else f"no destination: {settings.on_missing}"
    return Explanation(dict(row), choices[0].rule, _looked_at(values, settings), verdicts, note)


def _looked_at(values: dict[str, Any], settings: RoutingSettings) -> dict[str, str | None]:
    paths = settings.paths
    looked = {"/".join(each): values.get(lookup_column(number)) for number, each in enumerate(paths.lookups)}
    if paths.tables:
        looked |= {name: values.get(name) for name in (record.SCHEMA, record.TABLE)}
    named = {KEY_STREAM: paths.stream, KEY_TOPIC: paths.topic, KEY: paths.partition_key}
    return looked | {path: values.get(name) for name, path in named.items() if path}


def _partition(key: str | None, count: int, settings: RoutingSettings) -> str:
    if settings.paths.partition_key is None:
        return "any"
    if key is None:
        return "any (the key is NULL)"
    if settings.rules.encoding == "partition_id":
        return "any (the key is no number)" if key_number(key) is None else f"{key_number(key)} of {count}"
    data = key_bytes(key, settings.rules.encoding)
    if data is None:
        return "any (the key is no number)"
    crc = f", partition {zlib.crc32(data) % count} of {count} in NATS" if count > 1 else ""
    return f"by key {key!r}{crc}"


def _number(message_id: str) -> int:
    """Which sample a message is made of. Copies have a suffix."""
    return int(message_id.removeprefix(f"{ORIGIN}-").partition("~")[0])
