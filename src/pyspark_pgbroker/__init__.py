"""Lets Spark find the `pgbroker` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.broker.datasource import BrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
