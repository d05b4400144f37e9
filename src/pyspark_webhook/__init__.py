"""Lets Spark find the `webhook` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.webhook.datasource import WebhookDataSource as DefaultSource

__all__ = ["DefaultSource"]
