"""How long the answer to a failed login waits: longer with each failure of the same address, which slows guessing down.

Logins that are right never wait, so clients behind one address cannot lock each other out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Patience"]

FIRST_DELAY_S, LAST_DELAY_S = 0.2, 5.0
_FREE = 5  # failures with the first delay
_FORGOTTEN_S = 60.0
_MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class Patience:
    """Counts the failures of each address."""

    now: Callable[[], float] = time.monotonic
    _failures: dict[str, tuple[int, float]] = field(default_factory=dict)  # how many, and when the last was

    def failed(self, address: str) -> float:
        """Note a failure; returns for how many seconds to wait."""
        count = self._count(address) + 1
        self._failures.pop(address, None)  # in the order of their last failures
        if len(self._failures) >= _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = count, self.now()
        exponent = min(max(count - _FREE, 0), 10)
        return min(FIRST_DELAY_S * 2.0**exponent, LAST_DELAY_S)

    def _count(self, address: str) -> int:
        count, last = self._failures.get(address, (0, 0.0))
        return count if self.now() - last < _FORGOTTEN_S else 0
