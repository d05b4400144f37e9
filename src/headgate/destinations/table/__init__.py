"""Parquet files as a destination: one directory per stream and topic, and a batch is visible as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.table.destination import TABLE_SCHEMA, TableDestination, open_table
else:
    __getattr__ = lazily(__name__, TABLE_SCHEMA="destination", TableDestination="destination", open_table="destination")

__all__ = ["TABLE_SCHEMA", "TableDestination", "open_table"]
