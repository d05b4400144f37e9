"""Lets Spark find the `pgpoll` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.postgres_poll.datasource import PollDataSource as DefaultSource

__all__ = ["DefaultSource"]
