"""What clients of one gateway do, against what they may: how long each has to wait.

Each gateway counts for itself. Quotas are looked at about once a second; while PostgreSQL is away those that are known
go on counting.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from headgate.gateway.quotas.bucket import Bucket
from headgate.gateway.quotas.limits import Entity, Limit, Limits, Metric
from headgate.gateway.quotas.store import Pool, read_rows, sql

__all__ = ["Meter"]

MAX_DELAY_S = 30.0
_MOST_BUCKETS = 20_000


class Meter:
    """The buckets of all clients."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = Limits()
        self._clock = clock
        self._version: int | None = None
        self._buckets: dict[tuple[Entity, Metric], Bucket] = {}

    def take(self, limit: Limit | None, metric: Metric, amount: float) -> float:
        """Count what a client did. Returns how many seconds it has to wait."""
        if limit is None:
            return 0.0
        return min(self._bucket(limit, metric).take(amount, self._clock()), MAX_DELAY_S)

    def debt_s(self, limit: Limit | None, metric: Metric) -> float:
        """Return how many seconds a client has to wait for what was done before, perhaps by others of its entity."""
        return 0.0 if limit is None else min(self._bucket(limit, metric).debt_s(self._clock()), MAX_DELAY_S)

    async def refresh(self, pool: Pool) -> None:
        """Read the quotas if they, or ACLs, have changed."""
        async with pool.connection() as connection:
            await self.refresh_on(connection)

    async def refresh_on(self, connection: psycopg.AsyncConnection) -> None:
        """Read the quotas on a connection, if they, or ACLs, have changed."""
        row = await (await connection.execute(sql("version"))).fetchone()
        version = row[0] if row else None
        if version is None or version != self._version:
            # The version was read first: what is newer will be read once more, and nothing is missed.
            self.limits, self._version = Limits(await read_rows(connection)), version

    def doubt(self) -> None:
        """Read the quotas at the next look, whatever the version."""
        self._version = None

    def _bucket(self, limit: Limit, metric: Metric) -> Bucket:
        key = limit.shared_by, metric
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != limit.rate:  # with a new limit old debts are forgotten
            if len(self._buckets) >= _MOST_BUCKETS:
                self._drop_full()
            bucket = self._buckets[key] = Bucket.full(limit.rate, self._clock())
        return bucket

    def _drop_full(self) -> None:
        """Forget those without debts; if all have some, those that were made first."""
        now = self._clock()
        owing = [(key, bucket) for key, bucket in self._buckets.items() if bucket.debt_s(now) > 0]
        self._buckets = dict(owing[-_MOST_BUCKETS // 2 :])
