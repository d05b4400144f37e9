"""The tables under `[destinations]`: each kind's is declared in its own package, `destinations/KIND/section.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headgate.config.plugins import PluginDestinationSection
from headgate.destinations.broker.section import BrokerDestinationSection
from headgate.destinations.console.section import ConsoleDestinationSection
from headgate.destinations.discard.section import DiscardDestinationSection
from headgate.destinations.eventlog.section import EventLogDestinationSection
from headgate.destinations.iggy.section import IggyDestinationSection
from headgate.destinations.kafka.section import KafkaDestinationSection
from headgate.destinations.log.section import LogDestinationSection
from headgate.destinations.memory.section import MemoryDestinationSection
from headgate.destinations.nats.section import NatsDestinationSection
from headgate.destinations.shadow.section import ShadowDestinationSection
from headgate.destinations.table.section import TableDestinationSection
from headgate.destinations.webhook.section import WebhookDestinationSection

__all__ = [
    "BrokerDestinationSection",
    "ConsoleDestinationSection",
    "DestinationSection",
    "DiscardDestinationSection",
    "EventLogDestinationSection",
    "IggyDestinationSection",
    "KafkaDestinationSection",
    "LogDestinationSection",
    "MemoryDestinationSection",
    "NatsDestinationSection",
    "PluginDestinationSection",
    "ShadowDestinationSection",
    "TableDestinationSection",
    "WebhookDestinationSection",
]

DestinationSection = Annotated[
    NatsDestinationSection
    | BrokerDestinationSection
    | EventLogDestinationSection
    | PluginDestinationSection
    | MemoryDestinationSection
    | ConsoleDestinationSection
    | DiscardDestinationSection
    | KafkaDestinationSection
    | LogDestinationSection
    | ShadowDestinationSection
    | TableDestinationSection
    | IggyDestinationSection
    | WebhookDestinationSection,
    Field(discriminator="type"),
]
