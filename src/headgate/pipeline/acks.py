"""When rows were sent and acknowledged, and how long that took from their commit at the source, as a histogram.

One value for each step that is acknowledged: that of its oldest transaction, which has waited longest. The two clocks
are those of the database and of the task; where they disagree, a negative time counts as none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["ACK_BUCKETS_S", "Acks", "Moments"]

ACK_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
)  # fmt: skip


class Acks(msgspec.Struct):
    """Counts between the limits of `ACK_BUCKETS_S`, and the sum. Travels between tasks and the driver as JSON."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(ACK_BUCKETS_S) + 1))
    seconds: float = 0.0

    def observe(self, committed_at: float | None, now: float) -> None:
        """Count a step whose oldest transaction was committed then; None: nobody knows when."""
        if committed_at is None:
            return
        took_s = max(now - committed_at, 0.0)
        self.counts[bisect_left(ACK_BUCKETS_S, took_s)] += 1
        self.seconds += took_s

    def add(self, other: Acks) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    def since(self, before: Acks) -> Acks:
        """What has come since then; nothing where another attempt had counted more."""
        counts = [max(now - then, 0) for now, then in zip(self.counts, before.counts, strict=True)]
        return Acks(counts, max(self.seconds - before.seconds, 0.0))

    def copy(self) -> Acks:
        return Acks(list(self.counts), self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return the limits, the counts between them and the sum, for a report; empty if nothing was counted."""
        if not any(self.counts):
            return {}
        return {"limits": list(ACK_BUCKETS_S), "counts": list(self.counts), "sum": self.seconds}


class Moments(msgspec.Struct, frozen=True):
    """When a task began to send rows, had handed over the last, and had all acknowledged; by its own clock."""

    began: float
    sent: float
    acked: float

    @staticmethod
    def around(those: Iterable[Moments | None]) -> Moments | None:
        """Return the moments of several as those of one; None if there are none."""
        known = [each for each in those if each is not None]
        if not known:
            return None
        return Moments(
            min(each.began for each in known), max(each.sent for each in known), max(each.acked for each in known)
        )
