"""The tables of sources and destinations that other packages bring."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.config.base import PluginOptions
from headgate.config.kinds import DestinationTable, SourceTable

__all__ = ["PluginDestinationSection", "PluginSourceSection"]


class PluginSourceSection(SourceTable):
    """A source from an installed package, found by its entry point."""

    type: Literal["plugin"]
    plugin: str = Field(min_length=1, description="Name of the entry point.")
    options: PluginOptions = Field(default_factory=dict, repr=False, description="Whatever the plugin takes.")


class PluginDestinationSection(DestinationTable):
    """A destination from an installed package, found by its entry point."""

    type: Literal["plugin"]
    plugin: str = Field(min_length=1, description="Name of the entry point.")
    options: PluginOptions = Field(default_factory=dict, repr=False, description="Whatever the plugin takes.")
