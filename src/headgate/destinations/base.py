"""What a destination is.

A destination lives on the driver, travels to the executors by pickle, and opens a `Sender` there. The contract:

- at least once: `send` may be called again with the same rows after a failure, so rows carry a stable message id;
- `send` may return before the rows are safe; `finish` returns only when every row is, or raises, or names the topics
  whose rows are not;
- an error is a `HeadgateError`, whose kind says whether trying again makes sense. `ConnectError` means that the server
  is away, which is nobody's fault and opens no circuit breaker;
- rows of one partition key and topic stay in the order given.

Third parties bring destinations of their own through the entry point group `headgate.destinations.v1`; see
`docs/plugins.md`. Every kind passes `tests/contract/destinations`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import HeadgateError, record
from headgate.model.position import origin_of

__all__ = ["OWN_LANE", "Destination", "Failure", "Lane", "LocalDestination", "SendResult", "Sender", "TopicDefaults"]


@dataclass(frozen=True, slots=True)
class Lane:
    """What one sender is opened for: the rows of one stream in one task of one batch."""

    stream: str | None = None  # None is the destination's own
    batch_id: int = 0
    task: int = 0
    epoch: int | None = None  # which version of the routes chose the topics; travels with every message
    partitions: Mapping[str, int] = field(default_factory=dict)  # of topics, as `ensure_topic` told
    goes_on: bool = False  # follows the lane before without a gap, so its end may be taken from memory: see ADR 8
    is_late: bool = False  # replay of dead letters: skip deduplication by position, and do not advance it
    # Where several tasks send a batch between them: which rows these are, in the same words in every attempt, and an id
    # that all rows of the batch are behind, and none of an earlier one. Empty where one task sends all, in one order.
    share: str = ""
    behind: str = ""

    def writer(self, message_id: str) -> str:
        """Return who writes the row of this id: whoever is told last ids apart has one for each order of rows."""
        return f"{origin_of(message_id)}#{self.share}" if self.share else origin_of(message_id)

    def sharing(self, rows: pa.RecordBatch) -> Lane:
        """Return this lane for rows that say of which share they are."""
        told = rows.schema.metadata or {}
        if record.SHARE not in told:
            return self
        return replace(self, share=told[record.SHARE].decode(), behind=told[record.BEHIND].decode())


OWN_LANE = Lane()


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Settings of topics that headgate creates; a kind ignores those that it does not have."""

    partitions: int = 1
    replicas: int = 1
    max_age_s: float = 0.0  # 0 keeps messages
    max_bytes: int = 0  # 0 means no limit


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows of one topic that are not safe, and why."""

    topic: str
    rows: int
    error: HeadgateError

    def as_dict(self) -> dict[str, Any]:
        return {"topic": self.topic, "rows": self.rows, "error": self.error.as_dict()}


@dataclass(frozen=True, slots=True)
class SendResult:
    """Outcome of one lane at one destination."""

    destination: str
    rows: int
    payload_bytes: int
    duplicates: int = 0  # rows the destination had already, from a run that was cut off
    reports: tuple[dict[str, Any], ...] = ()  # for the destination on the driver to learn from; plain JSON
    failures: tuple[dict[str, Any], ...] = ()  # `Failure.as_dict()`: the topics whose rows must be sent again

    def plus(self, other: SendResult) -> SendResult:
        """Return the sum of this result and another of the same destination."""
        return SendResult(
            self.destination,
            self.rows + other.rows,
            self.payload_bytes + other.payload_bytes,
            self.duplicates + other.duplicates,
            self.reports + other.reports,
            self.failures + other.failures,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields | {"reports": tuple(fields["reports"]), "failures": tuple(fields["failures"])})


class Sender(abc.ABC):
    """Sends the rows of one lane, in order."""

    @abc.abstractmethod
    def send(self, batch: pa.RecordBatch) -> None:
        """Take some rows: `model.record.DELIVERY_COLUMNS`, and `PARTITION_KEY` and `PARTITION` where there are any."""

    @abc.abstractmethod
    def finish(self) -> SendResult:
        """Wait until every row is durable; return the result, with the topics that failed. Raises HeadgateError."""


class Destination(abc.ABC):
    """One configured destination. Must be picklable, and hold no connection."""

    api_version: ClassVar[int] = 0  # a plugin states the one it was written for
    has_tombstones: ClassVar[bool] = False  # keeps a key without a payload; others get an empty payload
    by_batch: ClassVar[bool] = False  # its lanes must know their batch, because `complete` makes it visible as a whole
    name: str

    def ensure(self) -> None:  # noqa: B027 - most kinds have nothing to set up
        """Create or check what must exist before the first row. Idempotent; called before every start."""

    def check(self) -> str:
        """Check on the driver that rows could be sent now, changing nothing; return what was found, or raise."""
        return ", ".join(str(value) for value in self.details().values())

    def last_message_id(self) -> str | None:
        """Return the newest message id, if one pipeline alone writes here, or None. On the driver, after `ensure`."""
        return None

    @property
    def takes_shares(self) -> bool:
        """Whether several tasks may send a batch between them, and a replay is still recognised as it is with one."""
        return False

    def start(self) -> None:  # noqa: B027
        """Start what must run beside the pipelines that write here, on the driver. Idempotent."""

    def stop(self) -> None:  # noqa: B027
        """Stop what `start` started. Idempotent."""

    def lost(self) -> str | None:
        """Return what has vanished since a pipeline delivered to it, or None. On the driver, before `ensure`."""
        return None

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        """Create a stream and a topic that a row asks for; that they exist already is success.

        Returns how many partitions the topic really has.
        """
        return 1

    def missing(self, stream: str | None, topic: str) -> str | None:
        """Return in words what `ensure_topic` would have to create; None if it is all there."""
        return None

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        """Return the partitions of a topic, as `ensure_topic` does, without creating anything."""
        return 1

    def fit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as this kind takes them: without tombstones where it has none."""
        at = rows.schema.get_field_index(record.PAYLOAD)
        if self.has_tombstones or not rows.column(at).null_count:
            return rows
        return rows.set_column(at, record.PAYLOAD, pc.fill_null(rows.column(at), b""))

    def learn(self, reports: Sequence[dict[str, Any]]) -> None:  # noqa: B027
        """Receive what the senders of a batch have reported. On the driver, after each batch."""

    def complete(self, batch_id: int, reports: Sequence[dict[str, Any]]) -> None:  # noqa: B027
        """Make a batch visible as a whole, for kinds that do (`by_batch`).

        On the driver, when every row of the batch is durable and before that is recorded; called again in a replay.
        """

    def details(self) -> dict[str, Any]:
        """Return what the status shows of this destination. On the driver."""
        return {}

    @abc.abstractmethod
    def open(self, lane: Lane = OWN_LANE) -> AbstractContextManager[Sender]:
        """Open a sender for one lane, on the executor; leaving it with an error drops what is in flight."""


class LocalDestination(Destination):
    """A destination inside the driver process. It receives a batch once all other destinations have it."""

    @property
    def takes_shares(self) -> bool:
        return True

    @abc.abstractmethod
    def accept(self, rows: pa.Table) -> None:
        """Take the delivery columns of a whole batch."""

    def open(self, lane: Lane = OWN_LANE) -> AbstractContextManager[Sender]:
        raise TypeError(f"{type(self).__name__} takes its rows on the driver")
