"""Lets Spark find the `pglog` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.log.datasource import LogDataSource as DefaultSource

__all__ = ["DefaultSource"]
