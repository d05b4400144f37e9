"""From the configuration to a `log` source."""

from __future__ import annotations

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.log.section import LogSourceSection
from headgate.sources.log.source import LogSource

__all__ = ["build"]


def build(section: LogSourceSection, context: SourceContext) -> LogSource:
    options = spark_options(section) | {"url": context.database(section.url)}
    return LogSource(context.name, options, context.origin)
