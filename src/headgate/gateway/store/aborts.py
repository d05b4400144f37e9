"""Which transactions were aborted among the batches of a partition that are in memory.

Batches come one after the other, without gaps, markers among them. What a transaction wrote before the first of them is
not served from memory, so it does not matter where the transaction began.
"""

from __future__ import annotations

from bisect import bisect_left

from headgate.wire.kafka.batch import read_batch_header
from headgate.wire.kafka.markers import is_commit
from headgate.wire.kafka.records import read_records

__all__ = ["Aborts"]


class Aborts:
    """The aborted transactions of a run of batches."""

    __slots__ = ("_begun", "_ended")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # producer: where its open transaction begins here
        self._ended: list[tuple[int, int, int]] = []  # offset of the marker, producer, and where it began here

    def add(self, base_offset: int, data: memoryview) -> None:
        """Take note of the next batch, which is one of a transaction."""
        header = read_batch_header(data)
        if not header.is_control:
            self._begun.setdefault(header.producer_id, base_offset)
            return
        first = self._begun.pop(header.producer_id, None)
        if first is not None and is_commit(next(read_records(data))) is False:
            self._ended.append((base_offset, header.producer_id, first))

    def among(self, offset: int, stop: int) -> list[tuple[int, int]]:
        """The producers, and the first offsets, of those that have batches from an offset on and before another."""
        start = bisect_left(self._ended, (offset, -1, -1))
        return [(producer, first) for _, producer, first in self._ended[start:] if first < stop]

    def forget(self, offset: int) -> None:
        """Forget what ended before an offset."""
        del self._ended[: bisect_left(self._ended, (offset, -1, -1))]

    def clear(self) -> None:
        """Begin anew."""
        self._begun.clear()
        self._ended.clear()
