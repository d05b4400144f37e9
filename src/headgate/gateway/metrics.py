"""What a gateway counts of itself."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

__all__ = ["LATENCY_BUCKETS_S", "Metrics"]

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Metrics:
    """Counters of one gateway process."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)  # by API and error, "NONE" if it went well
    received_bytes: int = 0
    sent_bytes: int = 0
    connections: int = 0
    connections_total: int = 0
    refused_connections_total: int = 0
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # by mechanism, and "success" or "failure"
    denied_total: int = 0
    throttled_total: int = 0
    throttled_seconds: float = 0.0
    append_count: int = 0
    append_seconds: float = 0.0
    append_buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_S) + 1))

    def appended(self, seconds: float) -> None:
        """One partition's batches are in the log."""
        self.append_count += 1
        self.append_seconds += seconds
        self.append_buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1

    def as_dict(self) -> dict[str, Any]:
        """The counters as JSON has them; buckets are cumulative, as Prometheus wants them."""
        return {
            "requests": [[api, error, count] for (api, error), count in sorted(self.requests.items())],
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "connections": self.connections,
            "connections_total": self.connections_total,
            "refused_connections_total": self.refused_connections_total,
            "logins": [[mechanism, outcome, count] for (mechanism, outcome), count in sorted(self.logins.items())],
            "denied_total": self.denied_total,
            "throttled_total": self.throttled_total,
            "throttled_seconds": self.throttled_seconds,
            "append_count": self.append_count,
            "append_seconds": self.append_seconds,
            "append_buckets": list(accumulate(self.append_buckets)),
        }
