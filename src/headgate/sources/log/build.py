"""From the configuration to a `log` source."""

from __future__ import annotations

from headgate.sources.context import SourceContext
from headgate.sources.log.section import LogSourceSection
from headgate.sources.log.source import LogSource

__all__ = ["build"]


def build(section: LogSourceSection, context: SourceContext) -> LogSource:
    options = {**section.reading(), "url": context.database(section.url)}
    return LogSource(context.name, {key: str(value) for key, value in options.items()}, context.origin)
