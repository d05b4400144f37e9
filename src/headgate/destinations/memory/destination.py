"""The `memory` destination: keeps the last rows in the process, for tests and for looking at."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

import pyarrow as pa

from headgate.destinations.base import LocalDestination
from headgate.model import record

__all__ = ["MemoryDestination", "Message"]


class Message(NamedTuple):
    """One delivered row."""

    topic: str
    message_id: str
    payload: bytes


class MemoryDestination(LocalDestination):
    """A bounded list of messages that any thread may read while batches arrive."""

    def __init__(self, name: str, max_rows: int = 10_000) -> None:
        self.name = name
        self._messages: deque[Message] = deque(maxlen=max_rows)
        self._seen = 0
        self._arrived = threading.Condition()

    def accept(self, rows: pa.Table) -> None:
        columns = (rows.column(name).to_pylist() for name in record.DELIVERY_COLUMNS)
        with self._arrived:
            self._messages.extend(Message(*row) for row in zip(*columns, strict=True))
            self._seen += rows.num_rows
            self._arrived.notify_all()

    @property
    def messages(self) -> list[Message]:
        with self._arrived:
            return list(self._messages)

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Wait until `count` rows have arrived in all, counting the forgotten ones."""
        with self._arrived:
            return self._arrived.wait_for(lambda: self._seen >= count, timeout_s)
