"""From the configuration to a `random` source."""

from __future__ import annotations

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.random.section import RandomSourceSection
from headgate.sources.random.source import RandomSource

__all__ = ["build"]


def build(section: RandomSourceSection, context: SourceContext) -> RandomSource:
    return RandomSource(context.name, spark_options(section), context.origin)
