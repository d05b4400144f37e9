"""Lets Spark find the `kafkatopics` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.kafka.datasource import KafkaTopicsDataSource as DefaultSource

__all__ = ["DefaultSource"]
