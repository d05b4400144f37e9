"""How much a store may hold in memory, and how often it looks after the log."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreSettings"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits and periods. The defaults are meant for everybody; tests make them smaller."""

    pool_size: int = 8
    group_bytes: int = 8 << 20  # of one commit
    queue_bytes: int = 64 << 20  # waiting to be written; then appends wait
    append_timeout_s: float = 10.0  # of requests that wait for a server that is away,
    append_bytes_per_s: int = 1 << 20  # and what a large one gets on top
    inflaters: int = 2  # threads that check compressed batches
    cache_bytes: int = 64 << 20  # the newest batches
    announce_interval_s: float = 0.005  # between two notifications to other gateways
    poll_interval_s: float = 1.0  # in case notifications get lost
    housekeeping_interval_s: float = 5.0
    segment_bytes: int = 1 << 30
    least_segment_s: float = 5.0
    compaction_interval_s: float = 5.0
    compaction_keys: int = 500_000  # noted in one round; some 100 bytes each
    inbox_interval_s: float = 0.1
    patience_s: float = 30.0  # for PostgreSQL's answer to a statement,
    upkeep_patience_s: float = 600.0  # and to one of retention or compaction, which may rewrite a segment

    def append_s(self, size: int) -> float:
        """How long an append of so many bytes may take."""
        return self.append_timeout_s + size / self.append_bytes_per_s
