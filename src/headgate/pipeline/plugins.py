"""Sources and destinations that others bring, found by entry points.

The group carries the version of the contract: `headgate.sources.v1`, `headgate.destinations.v1`. So a plugin that was
written for another version is refused before a line of it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from headgate.destinations.base import Destination
from headgate.model import ConfigError, DependencyError, HeadgateError
from headgate.model.plugin import API_VERSION
from headgate.sources.base import Source

__all__ = ["IncompatiblePluginError", "PluginContext", "plugin_destination", "plugin_source"]

Room = Literal["sources", "destinations"]


class IncompatiblePluginError(DependencyError, kind=DependencyError.kind):
    """A plugin for another version of the contract."""

    def __init__(self, message: str, *, remedy: str = "", where: str = "") -> None:
        super().__init__(message, remedy=remedy or "install a version of the plugin for this headgate", where=where)


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin is given besides its options."""

    name: str  # of its table in the configuration
    project: str
    directory: Path  # for what it must remember; it is there already


def plugin_source(plugin: str, options: Mapping[str, Any], context: PluginContext) -> Source:
    """A source made by its class method `create(options, context)`."""
    made = _create("sources", plugin, options, context)
    if not isinstance(made, Source):
        raise _unfit("sources", plugin, f"it made a {type(made).__name__}, not a Source", context)
    return made


def plugin_destination(plugin: str, options: Mapping[str, Any], context: PluginContext) -> Destination:
    """A destination made by its class method `create(options, context)`."""
    made = _create("destinations", plugin, options, context)
    if not isinstance(made, Destination):
        raise _unfit("destinations", plugin, f"it made a {type(made).__name__}, not a Destination", context)
    return made


def _create(room: Room, plugin: str, options: Mapping[str, Any], context: PluginContext) -> object:
    where = f"{room}.{context.name}"
    found = _find(room, plugin, where)
    try:
        loaded = found.load()
    except Exception as error:
        raise _unfit(room, plugin, f"it cannot be imported: {type(error).__name__}: {error}", context) from error
    version = getattr(loaded, "api_version", None)
    if version != API_VERSION:
        raise IncompatiblePluginError(_mismatch(plugin, version), where=where)
    try:
        return loaded.create(options, context)
    except HeadgateError as error:
        raise error.at(where) from None
    except Exception as error:
        raise _unfit(room, plugin, f"{type(error).__name__}: {error}", context) from error


def _find(room: Room, plugin: str, where: str) -> EntryPoint:
    group = f"headgate.{room}.v{API_VERSION}"
    same = {point.name: point for point in entry_points(group=group)}
    if plugin in same:
        return same[plugin]
    others = [each for each in entry_points(name=plugin) if re.fullmatch(rf"headgate\.{room}\.v\d+", each.group)]
    if others:
        raise IncompatiblePluginError(_mismatch(plugin, int(others[0].group.rpartition("v")[2])), where=where)
    known = ", ".join(sorted(same)) or "none"
    raise ConfigError(
        f"no installed package has a plugin {plugin!r} for {room}",
        where=where,
        remedy=f"install it; installed are: {known}",
    )


def _mismatch(plugin: str, version: object) -> str:
    return f"the plugin {plugin!r} is written for version {version} of the contract, this headgate has {API_VERSION}"


def _unfit(room: Room, plugin: str, what: str, context: PluginContext) -> DependencyError:
    return DependencyError(
        f"the plugin {plugin!r} for {room} cannot be used: {what}",
        where=f"{room}.{context.name}",
        remedy="report it to the plugin's author",
    )
