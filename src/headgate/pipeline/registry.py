"""Every kind of source and destination, and the one way in which each is built.

Our own kinds are packages with two modules: `section` has the kind's table of the configuration, `build` a function of
that name that makes the object. A package is imported when a file uses its kind, so that nobody waits for clients of
servers that are not there. Others' kinds come through the entry points of their packages: see `plugins`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from headgate.config.destinations import DestinationSection
from headgate.config.plugins import PluginDestinationSection, PluginSourceSection
from headgate.config.sources import SourceSection
from headgate.destinations.base import Destination
from headgate.destinations.context import DestinationContext
from headgate.pipeline.plugins import PluginContext, plugin_destination, plugin_source
from headgate.sources.base import Source
from headgate.sources.context import SourceContext

__all__ = ["DESTINATIONS", "SOURCES", "build_destination", "build_source"]

SOURCES = {
    "atproto": "headgate.sources.atproto",
    "broker": "headgate.sources.broker",
    "files": "headgate.sources.files",
    "kafka": "headgate.sources.kafka",
    "log": "headgate.sources.log",
    "postgres-cdc": "headgate.sources.postgres_cdc",
    "postgres-poll": "headgate.sources.postgres_poll",
    "random": "headgate.sources.random",
    "webhook": "headgate.sources.webhook",
}

DESTINATIONS = {
    "broker": "headgate.destinations.broker",
    "console": "headgate.destinations.console",
    "discard": "headgate.destinations.discard",
    "eventlog": "headgate.destinations.eventlog",
    "iggy": "headgate.destinations.iggy",
    "kafka": "headgate.destinations.kafka",
    "log": "headgate.destinations.log",
    "memory": "headgate.destinations.memory",
    "nats": "headgate.destinations.nats",
    "shadow": "headgate.destinations.shadow",
    "table": "headgate.destinations.table",
    "webhook": "headgate.destinations.webhook",
}


def build_source(section: SourceSection, context: SourceContext) -> Source:
    """Build the source that a table under `[sources]` describes, importing its kind's package."""
    if isinstance(section, PluginSourceSection):
        directory = _made(context.directory / "source")
        return plugin_source(section.plugin, section.options, PluginContext(context.name, context.project, directory))
    return cast(Source, import_module(f"{SOURCES[section.type]}.build").build(section, context))


def build_destination(section: DestinationSection, context: DestinationContext) -> Destination:
    """Build the destination that a table under `[destinations]` describes, importing its kind's package."""
    if isinstance(section, PluginDestinationSection):
        directory = _made(context.data_dir / "destinations" / context.name)
        told = PluginContext(context.name, context.project, directory)
        return plugin_destination(section.plugin, section.options, told)
    return cast(Destination, import_module(f"{DESTINATIONS[section.type]}.build").build(section, context))


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
