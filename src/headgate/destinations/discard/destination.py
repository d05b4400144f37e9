"""The `discard` destination: counts rows and drops them, to see what a pipeline does without a destination."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender, SendResult
from headgate.model import record

__all__ = ["DiscardDestination"]


@dataclass(frozen=True, slots=True)
class DiscardDestination(Destination):
    """Every row is safe at once."""

    name: str

    @property
    def takes_shares(self) -> bool:
        return True

    def open(self, lane: Lane = OWN_LANE) -> AbstractContextManager[Sender]:
        return nullcontext(_Counter(self.name))


class _Counter(Sender):
    def __init__(self, name: str) -> None:
        self._name = name
        self._rows = 0
        self._bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0

    def finish(self) -> SendResult:
        return SendResult(self._name, self._rows, self._bytes)
