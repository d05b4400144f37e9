"""Apache Iggy as a destination, through its SDK (the extra `iggy`)."""

from __future__ import annotations

from headgate.destinations.iggy.destination import IggyDestination
from headgate.destinations.iggy.options import IggyOptions

__all__ = ["IggyDestination", "IggyOptions"]
