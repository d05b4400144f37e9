"""From the configuration to a `postgres-poll` source."""

from __future__ import annotations

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.postgres_poll.section import PostgresPollSourceSection
from headgate.sources.postgres_poll.source import PostgresPollSource

__all__ = ["build"]


def build(section: PostgresPollSourceSection, context: SourceContext) -> PostgresPollSource:
    place = {"url": context.database(section.url), "directory": str(context.directory / "poll")}
    return PostgresPollSource(context.name, spark_options(section) | place, context.origin, section.destructive)
