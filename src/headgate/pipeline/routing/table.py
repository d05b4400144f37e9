"""The destinations a pipeline has used: admitted once, created once, watched from then on.

Lives on the driver and outlives a run of the query. What executors need of it travels to them as `Known`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headgate.destinations.base import Destination, TopicDefaults
from headgate.model import ConnectError, HeadgateError
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Admission, Reason
from headgate.pipeline.routing.breaker import Breaker, BreakerState
from headgate.pipeline.routing.prewarm import prewarm

__all__ = ["DestinationTable", "Entry", "Known"]

_log = logging.getLogger(__name__)

_ENSURE_THREADS = 8
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Entry:
    """One destination of rows at one destination of the configuration."""

    breaker: Breaker
    partitions: int = 0  # 0 until it is known to exist
    rows_total: int = 0
    failures_total: int = 0
    last_error: dict[str, str] | None = None
    making: threading.Lock = field(default_factory=threading.Lock, repr=False)  # so that it is created once


@dataclass(frozen=True, slots=True)
class Known:
    """What executors know of destinations: partitions of those that may be sent to, and which are left alone."""

    partitions: Mapping[Address, Mapping[str, int]] = field(default_factory=dict)
    open: frozenset[tuple[str, Address]] = frozenset()
    is_full: bool = False  # no further destination is admitted
    causes: Mapping[tuple[str, Address], str] = field(default_factory=dict)  # why those are left alone


class DestinationTable:
    """Admission with a memory. Safe to read from any thread while a batch is being delivered."""

    def __init__(
        self,
        targets: Sequence[Destination],
        admission: Admission,
        *,
        defaults: TopicDefaults = TopicDefaults(),  # noqa: B008 - frozen
        failure_threshold: int = 5,
        cool_down_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._targets = tuple(targets)
        self._admission = admission
        self._defaults = defaults
        self._threshold = failure_threshold
        self._cool_down_s = cool_down_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[Address, dict[str, Entry]] = {}
        self._created: list[int] = [0] * (len(LATENCY_BUCKETS_S) + 1)  # a histogram, not cumulative
        self._created_seconds = 0.0

    def configure(
        self, admission: Admission, defaults: TopicDefaults, failure_threshold: int, cool_down_s: float
    ) -> None:
        """New lists and limits; what is known of destinations stays."""
        with self._lock:
            self._admission, self._defaults = admission, defaults
            self._threshold, self._cool_down_s = failure_threshold, cool_down_s
            for entry in self._all():
                entry.breaker.threshold, entry.breaker.cool_down_s = failure_threshold, cool_down_s

    def rehearsed(self, targets: Sequence[Destination]) -> DestinationTable:
        """A copy that others can try things on: what is known of destinations, with these in place of the real ones."""
        with self._lock:
            copied = DestinationTable(
                targets,
                self._admission,
                defaults=self._defaults,
                failure_threshold=self._threshold,
                cool_down_s=self._cool_down_s,
                clock=self._clock,
            )
            copied._entries = {
                wanted: {
                    name: Entry(copy(entry.breaker), entry.partitions, last_error=entry.last_error)
                    for name, entry in entries.items()
                }
                for wanted, entries in self._entries.items()
            }
            return copied

    def known(self) -> Known:
        with self._lock:
            partitions = {
                wanted: {name: entry.partitions for name, entry in entries.items()}
                for wanted, entries in self._entries.items()
                if self._admission.refusal(wanted) is None
            }
            is_open = {
                (name, wanted): entry.last_error["message"] if entry.last_error else ""
                for wanted, entries in self._entries.items()
                for name, entry in entries.items()
                if entry.breaker.state is BreakerState.OPEN
            }
            is_full = len(self._entries) >= self._admission.max_destinations
            return Known(partitions, frozenset(is_open), is_full, is_open)

    def admit(self, wanted: Iterable[Address]) -> None:
        """Take up destinations as far as there is room, and create them. A server that is away raises."""
        wanted = sorted(set(wanted))
        with self._lock:
            for each in wanted:
                if each not in self._entries and len(self._entries) < self._admission.max_destinations:
                    self._entries[each] = {target.name: Entry(self._breaker()) for target in self._targets}
            listed = [each for each in wanted if each in self._entries]
        self.ensure(listed)

    def ensure(self, wanted: Iterable[Address]) -> None:
        """Create what is not known to exist. A failure counts against its destination alone."""
        todo = [
            (target, each)
            for each in wanted
            for target in self._targets
            if not self._entries[each][target.name].partitions
            and self._entries[each][target.name].breaker.state is not BreakerState.OPEN
        ]
        if not todo:
            return
        with ThreadPoolExecutor(min(_ENSURE_THREADS, len(todo)), thread_name_prefix="ensure") as pool:
            away = [error for error in pool.map(lambda pair: self._ensure(*pair), todo) if error is not None]
        if away:
            raise away[0]

    def _ensure(self, target: Destination, wanted: Address) -> ConnectError | None:
        entry = self._entries[wanted][target.name]
        with entry.making:
            return None if entry.partitions else self._create(target, wanted)

    def _create(self, target: Destination, wanted: Address) -> ConnectError | None:
        began = time.perf_counter()
        try:
            partitions = target.ensure_topic(wanted.stream or None, wanted.topic, self._defaults)
        except ConnectError as error:
            error.at(f"destinations.{target.name}")
            return error
        except HeadgateError as error:
            self.failed(target.name, wanted, error.at(f"destinations.{target.name}"))
            return None
        self._observe(time.perf_counter() - began)
        with self._lock:
            self._entries[wanted][target.name].partitions = partitions
        return None

    def prewarm(self, literal: Iterable[Address], deadline_s: float) -> None:
        """Create what the allowlist names, side by side. Whatever fails or is late comes with its first row."""
        listed = sorted(set(literal))
        with self._lock:
            for each in listed:
                self._entries.setdefault(each, {target.name: Entry(self._breaker()) for target in self._targets})
        pairs = [(target, each) for each in listed for target in self._targets]
        prewarm({f"{target.name}:{each}": partial(self._ensure, target, each) for target, each in pairs}, deadline_s)

    def succeeded(self, name: str, wanted: Address, rows: int) -> None:
        with self._lock:
            entry = self._entries[wanted][name]
            if entry.breaker.state is not BreakerState.CLOSED:
                _log.info("circuit closed", extra={"destination": f"{name}:{wanted}"})
            entry.breaker.succeeded()
            entry.rows_total += rows

    def failed(self, name: str, wanted: Address, error: HeadgateError) -> None:
        """One more failure of a destination; a lost connection is not one."""
        with self._lock:
            entry = self._entries[wanted][name]
            entry.failures_total += 1
            entry.last_error = error.as_dict()
            if isinstance(error, ConnectError):
                return
            was = entry.breaker.state
            entry.breaker.failed()
            if was is not BreakerState.OPEN and entry.breaker.state is BreakerState.OPEN:
                fields = {"destination": f"{name}:{wanted}", "error": error.as_dict(), "seconds": self._cool_down_s}
                _log.warning("circuit opened", extra=fields)

    def is_created(self, name: str, wanted: Address) -> bool:
        with self._lock:
            return self._entries[wanted][name].partitions > 0

    def creation_error(self, name: str, wanted: Address) -> HeadgateError | None:
        """Why a destination could not be created; None if it was."""
        with self._lock:
            entry = self._entries[wanted][name]
            if entry.partitions or entry.last_error is None:
                return None
            return HeadgateError.from_text(f"headgate-error: {json.dumps(entry.last_error)}")

    def refusal(self, wanted: Address) -> Reason | None:
        """What a row that wants this destination would be told now."""
        refused = self._admission.refusal(wanted)
        if refused is not None:
            return refused
        with self._lock:
            entries = self._entries.get(wanted)
            if entries is None:
                return Reason.CAP if len(self._entries) >= self._admission.max_destinations else None
            is_open = any(entry.breaker.state is BreakerState.OPEN for entry in entries.values())
            return Reason.CIRCUIT_OPEN if is_open else None

    def describe(self) -> list[dict[str, Any]]:
        """Every destination, for people."""
        with self._lock:
            return [
                {
                    "destination": name,
                    "stream": wanted.stream or None,
                    "topic": wanted.topic,
                    "partitions": entry.partitions or None,
                    "circuit": entry.breaker.state.value,
                    "retry_in_seconds": round(entry.breaker.closes_in_s, 1),
                    "rows_total": entry.rows_total,
                    "failures_total": entry.failures_total,
                    "error": entry.last_error,
                }
                for wanted, entries in sorted(self._entries.items())
                for name, entry in entries.items()
            ]

    @property
    def active(self) -> int:
        return len(self._entries)

    @property
    def open_circuits(self) -> int:
        with self._lock:
            return sum(entry.breaker.state is not BreakerState.CLOSED for entry in self._all())

    def create_seconds(self) -> dict[str, Any]:
        """How long creating took: a histogram."""
        with self._lock:
            return {"limits": list(LATENCY_BUCKETS_S), "counts": list(self._created), "sum": self._created_seconds}

    def _all(self) -> list[Entry]:
        return [entry for entries in self._entries.values() for entry in entries.values()]

    def _breaker(self) -> Breaker:
        return Breaker(self._threshold, self._cool_down_s, self._clock)

    def _observe(self, seconds: float) -> None:
        bucket = next((i for i, limit in enumerate(LATENCY_BUCKETS_S) if seconds <= limit), len(LATENCY_BUCKETS_S))
        with self._lock:
            self._created[bucket] += 1
            self._created_seconds += seconds
