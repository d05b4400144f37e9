"""From the configuration to a `log` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext
from headgate.destinations.log.destination import LogDestination
from headgate.destinations.log.section import LogDestinationSection

__all__ = ["build"]


def build(section: LogDestinationSection, context: DestinationContext) -> LogDestination:
    url, exclusive = context.database(section.url), context.exclusive(section.exclusive)
    return LogDestination(
        context.name, url, section.topic, section.partitions, exclusive, section.cleanup_policy, context.has_batches
    )
