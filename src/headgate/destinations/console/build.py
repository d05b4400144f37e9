"""From the configuration to a `console` destination."""

from __future__ import annotations

from headgate.destinations.console.destination import ConsoleDestination
from headgate.destinations.console.section import ConsoleDestinationSection
from headgate.destinations.context import DestinationContext

__all__ = ["build"]


def build(section: ConsoleDestinationSection, context: DestinationContext) -> ConsoleDestination:
    return ConsoleDestination(context.name, section.max_rows_per_batch)
