"""Destinations that remember what was asked of them, and fail on request."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headgate.destinations.base import OWN_LANE, Destination, Failure, Lane, Sender, SendResult, TopicDefaults
from headgate.model import DeliveryError, HeadgateError, record
from headgate.pipeline.routing.explain import ORIGIN, Explanation, explain_batch, sample_id
from headgate.pipeline.routing.router import KEY, KEY_STREAM, KEY_TOPIC, lookup_column
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.pipeline.routing.table import DestinationTable


class FakeSender(Sender):
    def __init__(self, target: FakeDestination, lane: Lane) -> None:
        self._target = target
        self._lane = lane
        self._rows: list[dict[str, Any]] = []

    def send(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.to_pylist()

    def finish(self) -> SendResult:
        target = self._target
        if target.error_of_lane is not None:
            raise target.error_of_lane
        good = [row for row in self._rows if row[record.TOPIC] not in target.errors]
        bad = Counter(row[record.TOPIC] for row in self._rows if row[record.TOPIC] in target.errors)
        with target.lock:
            target.sent.append((self._lane, good))
        failures = tuple(Failure(topic, rows, target.errors[topic]).as_dict() for topic, rows in bad.items())
        size = sum(len(row[record.PAYLOAD]) for row in good)
        return SendResult(target.name, len(good), size, reports=({"rows": len(good)},), failures=failures)


class FakeDestination(Destination):
    """In this process; `sent` has every lane with its rows, in the order in which lanes were finished."""

    def __init__(self, name: str = "fake", partitions: int = 1) -> None:
        self.name = name
        self.partitions = partitions
        self.lock = threading.Lock()
        self.sent: list[tuple[Lane, list[dict[str, Any]]]] = []
        self.errors: dict[str, HeadgateError] = {}  # by topic
        self.error_of_lane: HeadgateError | None = None
        self.ensured: list[tuple[str | None, str]] = []
        self.ensure_error: HeadgateError | None = None
        self.existing: set[str] = set()
        self.may_ensure = threading.Event()
        self.may_ensure.set()
        self.completed: list[int] = []

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        with self.lock:
            self.ensured.append((stream, topic))
        assert self.may_ensure.wait(30)
        if self.ensure_error is not None:
            raise self.ensure_error
        return max(self.partitions, defaults.partitions)

    def missing(self, stream: str | None, topic: str) -> str | None:
        if self.error_of_lane is not None:
            raise self.error_of_lane
        return None if topic in self.existing else f"topic {topic}"

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        return self.partitions if self.partitions > 1 else defaults.partitions

    def complete(self, batch_id: int, reports: Any) -> None:
        self.completed.append(batch_id)

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        yield FakeSender(self, lane)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Stream, topic and message id of all rows, in order."""
        return [
            (lane.stream or "", row[record.TOPIC], row[record.MESSAGE_ID]) for lane, rows in self.sent for row in rows
        ]


class FlakyDestination(FakeDestination):
    """The first lanes are good, all others fail."""

    def __init__(self, name: str, good_lanes: int) -> None:
        super().__init__(name)
        self._left = good_lanes

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        self._left -= 1
        self.error_of_lane = DeliveryError("no", remedy="wait") if self._left < 0 else None
        yield FakeSender(self, lane)


def explained(
    rows: list[dict[str, Any]],
    settings: RoutingSettings,
    targets: Sequence[Destination] = (),
    table: DestinationTable | None = None,
) -> list[Explanation]:
    """Rows given by the values that routes look at, as texts."""
    paths = settings.paths
    named = {KEY_STREAM: paths.stream, KEY_TOPIC: paths.topic, KEY: paths.partition_key}
    named |= {lookup_column(number): "/".join(each) for number, each in enumerate(paths.lookups)}
    columns = {name: pa.array([row.get(path) for row in rows], pa.string()) for name, path in named.items() if path}
    columns[record.MESSAGE_ID] = pa.array([f"{ORIGIN}-{sample_id(number)}" for number in range(len(rows))])
    columns[record.PAYLOAD] = pa.array([b""] * len(rows), pa.binary())
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return explain_batch(rows, made, settings, targets, table)
