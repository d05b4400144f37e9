"""From the configuration to an `eventlog` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext
from headgate.destinations.eventlog.destination import EventLogDestination
from headgate.destinations.eventlog.section import EventLogDestinationSection
from headgate.eventlog import LogOptions
from headgate.model import ConfigError

__all__ = ["build"]


def build(section: EventLogDestinationSection, context: DestinationContext) -> EventLogDestination:
    if not context.spark_master.startswith("local"):
        raise ConfigError(
            "an event log is written by tasks on the machine that has its files",
            where=f"destinations.{context.name}",
            remedy='set spark.master to "local[N]", or choose another destination, such as kafka or nats',
        )
    options = LogOptions(section.segment_events, section.segment_bytes, section.max_age, section.max_bytes)
    path = section.directory(context.name, context.data_dir)
    exclusive = context.exclusive(section.exclusive)
    return EventLogDestination(context.name, str(path), section.topic, options, exclusive)
