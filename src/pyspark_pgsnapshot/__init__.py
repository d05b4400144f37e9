"""Lets Spark find the `pgsnapshot` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.postgres_snapshot.datasource import SnapshotDataSource as DefaultSource

__all__ = ["DefaultSource"]
