"""From the configuration to a `discard` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext
from headgate.destinations.discard.destination import DiscardDestination
from headgate.destinations.discard.section import DiscardDestinationSection

__all__ = ["build"]


def build(section: DiscardDestinationSection, context: DestinationContext) -> DiscardDestination:
    return DiscardDestination(context.name)
