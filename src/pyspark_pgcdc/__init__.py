"""Lets Spark find the `pgcdc` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.postgres_cdc.datasource import CdcDataSource as DefaultSource

__all__ = ["DefaultSource"]
