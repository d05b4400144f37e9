"""Lets Spark find the `random` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.random.datasource import RandomDataSource as DefaultSource

__all__ = ["DefaultSource"]
