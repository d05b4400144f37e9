"""The configuration of a `discard` destination."""

from __future__ import annotations

from typing import Literal

from headgate.config.kinds import DestinationTable

__all__ = ["DiscardDestinationSection"]


class DiscardDestinationSection(DestinationTable):
    """Counts rows and drops them, to see what a pipeline does without a destination."""

    type: Literal["discard"]
