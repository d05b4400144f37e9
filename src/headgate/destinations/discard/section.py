"""The configuration of a `discard` destination."""

from __future__ import annotations

from typing import Literal

from headgate.config.base import Section

__all__ = ["DiscardDestinationSection"]


class DiscardDestinationSection(Section):
    """Counts rows and drops them, to see what a pipeline does without a destination."""

    type: Literal["discard"]
