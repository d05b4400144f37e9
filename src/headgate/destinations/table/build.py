"""From the configuration to a `table` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext, revealed
from headgate.destinations.table.destination import TableDestination
from headgate.destinations.table.section import TableDestinationSection

__all__ = ["build"]


def build(section: TableDestinationSection, context: DestinationContext) -> TableDestination:
    path = revealed(section.path) or f"tables/{context.name}"
    full = path if "://" in path else str(context.data_dir / path)
    return TableDestination(context.name, full, section.compression, context.has_streams)
