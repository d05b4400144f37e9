"""Lets Spark find the `filelines` source by itself: it imports every installed module named `pyspark_*`."""

from __future__ import annotations

from headgate.sources.files.datasource import FileLinesDataSource as DefaultSource

__all__ = ["DefaultSource"]
