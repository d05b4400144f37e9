"""From the configuration to a `broker` destination."""

from __future__ import annotations

from headgate.destinations.broker.destination import BrokerDestination
from headgate.destinations.broker.section import BrokerDestinationSection
from headgate.destinations.context import DestinationContext

__all__ = ["build"]


def build(section: BrokerDestinationSection, context: DestinationContext) -> BrokerDestination:
    url, exclusive = context.database(section.url), context.exclusive(section.exclusive)
    return BrokerDestination(context.name, url, section.broker_schema, section.topic, section.payload, exclusive)
