"""From the configuration to an `atproto` source."""

from __future__ import annotations

from headgate.config.options import spark_options
from headgate.sources.atproto.section import AtprotoSourceSection
from headgate.sources.atproto.source import AtprotoSource
from headgate.sources.context import SourceContext

__all__ = ["build"]


def build(section: AtprotoSourceSection, context: SourceContext) -> AtprotoSource:
    if section.path is not None:
        place = {"path": str(section.path.absolute())}
    else:
        place = {"url": section.url, "spool": str(context.directory / "spool")}
    return AtprotoSource(context.name, spark_options(section) | place, context.origin)
