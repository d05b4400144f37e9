"""The messages in flight: which slot belongs to which row, and how much more may be sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.model import ProtocolError

__all__ = ["Window"]

Ints = npt.NDArray[np.int64]


class Window:
    """A ring of slots. Messages take slots in order; answers free them in any order.

    The window moves past a message only when it and all before it are answered, so a slot is never taken twice and
    the number of unanswered messages and bytes stays within the limits.
    """

    def __init__(self, slots: int, max_bytes: int) -> None:
        self.slots = slots
        self._max_bytes = max_bytes
        self._ring = np.tile(np.arange(slots), 2)  # a slice of it is a stretch of the ring, its end and start included
        self._pending = np.zeros(slots, dtype=bool)
        self._rows = np.zeros(slots, dtype=np.int64)
        self._ends = np.zeros(slots, dtype=np.int64)  # bytes sent up to and including the slot's message
        self.sent = 0  # messages, since the connection was opened
        self._oldest = 0  # the first message that is not answered yet
        self._sent_bytes = 0
        self._answered_bytes = 0  # of the messages before the oldest

    @property
    def in_flight(self) -> int:
        """Messages from the oldest unanswered one on; some of the later ones may be answered already."""
        return self.sent - self._oldest

    def room(self, offsets: Ints, first: int) -> int:
        """How many of the frames from `first` on to send now: 0 while it is too few to be worth a write.

        One at least if nothing is in flight, so that a message larger than the whole window passes alone.
        """
        remaining = len(offsets) - 1 - first
        count = min(remaining, self.slots - self.in_flight)
        bytes_left = self._max_bytes - (self._sent_bytes - self._answered_bytes)
        if offsets[first + count] - offsets[first] > bytes_left:
            count = max(0, int(np.searchsorted(offsets, offsets[first] + bytes_left, side="right")) - 1 - first)
        if not self.in_flight:
            return max(1, count)
        size = offsets[first + count] - offsets[first]
        worth = count == remaining or count * 4 >= self.slots or size * 4 >= self._max_bytes
        return count if worth else 0

    def take(self, rows: Ints, ends: Ints) -> None:
        """Note messages as sent. `ends` counts the bytes from the first of them."""
        slots = self._ring[self.sent % self.slots :][: len(rows)]
        self._rows[slots] = rows
        self._ends[slots] = ends + self._sent_bytes
        self._pending[slots] = True
        self.sent += len(rows)
        self._sent_bytes += int(ends[-1])

    def answer(self, slots: Ints) -> Ints:
        """Free the slots and return their rows. An answer that no message waits for is a `ProtocolError`."""
        if slots.max() >= self.slots or not self._pending[slots].all() or not self._distinct(slots):
            raise ProtocolError("NATS acknowledged a message that is not in flight")
        self._pending[slots] = False
        self._advance()
        return self._rows[slots]

    def unanswered(self) -> Ints:
        """The rows that still wait, in the order of sending."""
        slots = self._ring[self._oldest % self.slots :][: self.in_flight]
        return self._rows[slots[self._pending[slots]]]

    def _distinct(self, slots: Ints) -> bool:
        # Answers come in the order of sending nearly always; sorting is for the rest.
        return bool(np.array_equal(slots, self._ring[slots[0] :][: len(slots)])) or len(np.unique(slots)) == len(slots)

    def _advance(self) -> None:
        slots = self._ring[self._oldest % self.slots :][: self.in_flight]
        waiting = self._pending[slots]
        count = int(waiting.argmax()) if waiting.any() else len(slots)
        if count:
            self._answered_bytes = int(self._ends[slots[count - 1]])
            self._oldest += count
