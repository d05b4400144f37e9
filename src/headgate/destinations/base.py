"""What a destination is.

A destination lives on the driver, travels to the executors by pickle, and opens a `Sender` there. The contract:

- at least once: `send` may be called again with the same rows after a failure, so rows carry a stable message id;
- `send` may return before the rows are safe; `finish` returns only when every row is, or raises;
- an error is a `HeadgateError`, whose kind says whether trying again makes sense.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Self

import pyarrow as pa

__all__ = ["Destination", "LocalDestination", "SendResult", "Sender"]


@dataclass(frozen=True, slots=True)
class SendResult:
    """What became of the rows of one task at one destination."""

    destination: str
    rows: int
    payload_bytes: int
    duplicates: int = 0  # rows the destination had already, from a run that was cut off
    reports: tuple[dict[str, Any], ...] = ()  # for the destination on the driver to learn from; plain JSON

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields | {"reports": tuple(fields["reports"])})


class Sender(abc.ABC):
    """Sends the rows of one task, in order."""

    @abc.abstractmethod
    def send(self, batch: pa.RecordBatch) -> None:
        """Take the delivery columns (`model.record.DELIVERY_COLUMNS`) of some rows."""

    @abc.abstractmethod
    def finish(self) -> SendResult:
        """Wait until every row is safe."""


class Destination(abc.ABC):
    """One configured destination. Must be picklable, and hold no connection."""

    name: str

    def ensure(self) -> None:  # noqa: B027 - most kinds have nothing to set up
        """Create or check what must exist before the first row. Idempotent; called before every start."""

    def learn(self, reports: Sequence[dict[str, Any]]) -> None:  # noqa: B027
        """On the driver, after each batch: what its senders have reported."""

    def details(self) -> dict[str, Any]:
        """On the driver: what it says of itself, for the status."""
        return {}

    @abc.abstractmethod
    def open(self) -> AbstractContextManager[Sender]:
        """A sender for one task, opened on the executor; leaving it with an error drops what is in flight."""


class LocalDestination(Destination):
    """A destination inside the driver process: rows come back to it once all others have them."""

    @abc.abstractmethod
    def accept(self, rows: pa.Table) -> None:
        """Take the delivery columns of a whole batch."""

    def open(self) -> AbstractContextManager[Sender]:
        raise TypeError(f"{type(self).__name__} takes its rows on the driver")
