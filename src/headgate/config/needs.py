"""What a configuration uses: its sources and destinations, and of the embedded servers only those."""

from __future__ import annotations

from typing import NamedTuple

from headgate.config.destinations import DestinationSection
from headgate.config.models import Config
from headgate.config.sources import SourceSection

__all__ = ["Needs", "needs_of", "used_destinations", "used_sources"]


class Needs(NamedTuple):
    """Whether something uses the server of `[postgres]`, and that of `[nats]`."""

    postgres: bool = True
    nats: bool = True


def used_sources(config: Config) -> dict[str, SourceSection]:
    """Return the sources of enabled pipelines; without any pipeline in the file, all sources."""
    used = {pipeline.source for pipeline in config.pipelines.values() if pipeline.enabled}
    return {name: each for name, each in config.sources.items() if name in used or not config.pipelines}


def used_destinations(config: Config) -> dict[str, DestinationSection]:
    """Return the destinations of enabled pipelines; without any pipeline in the file, all destinations."""
    used = {name for pipeline in config.pipelines.values() if pipeline.enabled for name in pipeline.destinations}
    return {name: each for name, each in config.destinations.items() if name in used or not config.pipelines}


def needs_of(config: Config) -> Needs:
    """Which servers the file's own sections stand for: what names a server of its own does not count."""
    sections = [*used_sources(config).values(), *used_destinations(config).values()]
    used = {each.uses for each in sections if getattr(each, "url", None) is None}
    return Needs(
        postgres="postgres" in used
        or config.gateway.enabled
        or any(each.enabled and each.url is None for each in (config.broker, config.registry)),
        nats="nats" in used,
    )
