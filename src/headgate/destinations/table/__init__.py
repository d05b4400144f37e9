"""Parquet files as a destination: one directory per stream and topic, and a batch is visible as a whole."""

from __future__ import annotations

from headgate.destinations.table.destination import TABLE_SCHEMA, TableDestination, open_table

__all__ = ["TABLE_SCHEMA", "TableDestination", "open_table"]
