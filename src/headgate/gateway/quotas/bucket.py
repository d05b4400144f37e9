"""Token bucket: something that may be done at a rate, with a second's worth at once. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bucket"]

BURST_S = 1.0


@dataclass(slots=True)
class Bucket:
    """What is left of a rate. What was taken too much is a debt, which time pays off."""

    rate: float  # in units a second
    at: float  # when `left` was right
    left: float = 0.0

    @classmethod
    def full(cls, rate: float, now: float) -> Bucket:
        """Return a bucket from which nothing was taken."""
        return cls(rate, now, rate * BURST_S)

    def take(self, amount: float, now: float) -> float:
        """Take what was done, however much it is. Returns for how many seconds nothing more should be."""
        self._fill(now)
        self.left -= amount
        return self.debt_s(now)

    def debt_s(self, now: float) -> float:
        """Return for how many seconds nothing more should be done."""
        self._fill(now)
        return max(0.0, -self.left / self.rate)

    def _fill(self, now: float) -> None:
        if now > self.at:  # a clock that goes back gives nothing and takes nothing
            self.left = min(self.left + (now - self.at) * self.rate, self.rate * BURST_S)
            self.at = now
