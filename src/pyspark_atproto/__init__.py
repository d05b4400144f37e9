"""Lets Spark find the `atproto` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.atproto.datasource import AtprotoDataSource as DefaultSource

__all__ = ["DefaultSource"]
