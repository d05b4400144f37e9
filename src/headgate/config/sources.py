"""The tables under `[sources]`: each kind's is declared in its own package, `sources/KIND/section.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headgate.config.plugins import PluginSourceSection
from headgate.sources.atproto.section import AtprotoSourceSection
from headgate.sources.broker.section import BrokerSourceSection
from headgate.sources.files.section import FilesSourceSection
from headgate.sources.kafka.section import KafkaSourceSection
from headgate.sources.log.section import LogSourceSection
from headgate.sources.postgres_cdc.section import DebeziumSection, PostgresCdcSourceSection
from headgate.sources.postgres_poll.section import PostgresPollSourceSection
from headgate.sources.random.section import RandomSourceSection
from headgate.sources.webhook.section import WebhookSourceSection

__all__ = [
    "AtprotoSourceSection",
    "BrokerSourceSection",
    "DebeziumSection",
    "FilesSourceSection",
    "KafkaSourceSection",
    "LogSourceSection",
    "PluginSourceSection",
    "PostgresCdcSourceSection",
    "PostgresPollSourceSection",
    "RandomSourceSection",
    "SourceSection",
    "WebhookSourceSection",
]

SourceSection = Annotated[
    RandomSourceSection
    | AtprotoSourceSection
    | BrokerSourceSection
    | FilesSourceSection
    | KafkaSourceSection
    | LogSourceSection
    | PluginSourceSection
    | PostgresCdcSourceSection
    | PostgresPollSourceSection
    | WebhookSourceSection,
    Field(discriminator="type"),
]
