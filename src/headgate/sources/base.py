"""What a source is.

A source is two things: a Spark streaming source (`format`, with its options), which anybody can also read alone, and
this object on the driver, which says what kind of source it is and is told what has been delivered.

Third parties bring sources of their own through the entry point group `headgate.sources.v1`; see `docs/plugins.md`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

__all__ = [
    "ABSENT",
    "CDC",
    "DESTRUCTIVE_POLLING",
    "OPAQUE",
    "POLLING",
    "Follow",
    "GoesOn",
    "InitialRows",
    "Lag",
    "MakeRows",
    "Mode",
    "Offset",
    "Pick",
    "Shortcut",
    "Source",
    "Stretch",
]

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mode:
    """Whether rows of a batch that failed come again. It decides the pipeline's policy when a commit fails.

    `cdc`: the rows stay in the server until they are confirmed, so a commit is tried for ever.
    `polling`: the rows come again with the next poll; a commit that failed is made up for later.
    `opaque`: nobody knows, so a commit that fails stops the pipeline.
    """

    kind: Literal["cdc", "polling", "opaque"]
    destructive: bool = False  # a commit takes rows away where they come from

    def __str__(self) -> str:
        return f"{self.kind} (destructive)" if self.destructive else self.kind


CDC = Mode("cdc")
POLLING = Mode("polling")
DESTRUCTIVE_POLLING = Mode("polling", destructive=True)
OPAQUE = Mode("opaque")


# Whether a change lacks a column that is picked of it, neither its new nor its old row having it.
ABSENT = "_route_absent"

MakeRows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows in source order, and the offset behind them. `is_planned`: they belong to the offsets that Spark planned."""

    rows: Iterator[pa.RecordBatch]
    end: Offset
    is_planned: bool = False
    committed_at: float | None = None  # of its oldest transaction, in seconds since the epoch; None: unknown


# Whether a task goes on: for how many seconds it need not ask again, unless its source is woken; 0 to end.
GoesOn = Callable[[], float]

# Yields delivery columns of the planned rows, then of rows that arrive behind them, as long as the task goes on.
Follow = Callable[[Iterator[pa.RecordBatch], GoesOn], Iterator[Stretch]]


@dataclass(frozen=True, slots=True)
class Pick:
    """A column to extract from each row: its name, and dotted paths whose values are joined with `/`."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """How a sender decodes rows itself, so that rows that no transform changes never enter the JVM.

    With `options` the Spark source yields pointers to rows. `rows` turns pointers into delivery columns, and columns of
    what is picked. `follow` does so too and goes on with rows behind them, so that a row need not wait for the next
    batch; the source is then also read with `follow_options`.
    """

    options: dict[str, str]
    rows: Callable[[Sequence[Pick]], MakeRows]
    follow: Callable[[Sequence[Pick]], Follow] | None = None
    follow_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InitialRows:
    """Rows to send before the first batch: their delivery columns, and a callback for when all of them are durable."""

    batches: Iterator[pa.RecordBatch]
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Lag:
    """Backlog: what is not delivered yet, in the units that the source knows. None: unknown."""

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None  # since the oldest of it was written


class Source(abc.ABC):
    """One configured source, on the driver. `mode` and `commit` have no default: a source must know both."""

    api_version: ClassVar[int] = 0  # a plugin states the one it was written for
    name: str
    format: str  # what Spark knows it by
    has_envelope = False  # its rows carry their topic and payload
    shortcut: Shortcut | None = None

    @abc.abstractmethod
    def mode(self) -> Mode:
        """Return what kind of source this is."""

    @abc.abstractmethod
    def options(self) -> dict[str, str]:
        """Return the options of the Spark source."""

    @abc.abstractmethod
    def commit(self, end: Offset) -> None:
        """Acknowledge an offset: all before it is delivered and recorded. Only now may rows be released or deleted.

        Cumulative, and called again for the same offset after a crash. A crash may also come before the first call,
        so whatever a commit needs must be durable before the batch's rows are handed out.
        """

    @abc.abstractmethod
    def origin(self) -> str:
        """Return the first part of every message id; may ask the server. A row must get the same one in every run."""

    def delivered_before(self, message_ids: list[str]) -> None:  # noqa: B027 - most kinds need not know
        """Receive the newest message ids of earlier runs, from destinations that only this pipeline writes to.

        Called before the query starts.
        """

    def initial_rows(self, last_ids: list[str], *, is_new: bool) -> InitialRows | None:
        """Return rows to send before the query's first batch; None if there are none.

        `last_ids` are as in `delivered_before`; `is_new`: the pipeline has never run.
        """
        return None

    def start(self) -> None:  # noqa: B027 - most kinds have nothing of their own to run
        """Start what must run beside the query, such as a server that receives rows. Idempotent."""

    def stop(self) -> None:  # noqa: B027
        """Stop what `start` started. Idempotent."""

    def wake(self) -> None:  # noqa: B027 - most kinds have no task that follows
        """Have a task that follows this source ask at once whether it goes on."""

    def load(self, stream: Any) -> Any:
        """Return a streaming DataFrame from `spark.readStream`."""
        return stream.format(self.format).options(**self.options()).load()

    def check(self) -> str:
        """Check that what it reads from exists and may be read, changing nothing; return what was found, or raise."""
        return ""

    def lag_rows(self, end: Offset, latest: Offset) -> int | None:
        """Return how many rows lie between two offsets; None if that cannot be told."""
        return None

    def lag(self, end: Offset | None) -> Lag | None:
        """Return the lag behind the delivered offset (None: nothing is delivered); None if that cannot be told.

        For sources whose Spark reader does not report its latest offset, and instead of `lag_rows`. Called every few
        seconds from a thread of its own, also while nothing is delivered; it may ask the server, and raise.
        """
        return None

    def committed_at(self, after: Offset | None) -> float | None:
        """Return when the oldest row behind an offset was committed, in seconds since the epoch; None if unknown.

        Asked once for each batch, after its rows are acknowledged and before they are committed. Asks no server.
        """
        return None

    def reached(self, end: Offset) -> dict[str, Any]:
        """Return an offset in words of the source: the file and byte, the tracking value. Asks no server."""
        return dict(end)

    def describe(self) -> dict[str, Any]:
        """Return what the source says of itself, for the status."""
        return {}
