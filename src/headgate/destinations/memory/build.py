"""From the configuration to a `memory` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext
from headgate.destinations.memory.destination import MemoryDestination
from headgate.destinations.memory.section import MemoryDestinationSection

__all__ = ["build"]


def build(section: MemoryDestinationSection, context: DestinationContext) -> MemoryDestination:
    return MemoryDestination(context.name, section.max_rows)
