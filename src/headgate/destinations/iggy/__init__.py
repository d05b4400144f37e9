"""Apache Iggy as a destination, through its SDK (the extra `iggy`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.iggy.destination import IggyDestination
    from headgate.destinations.iggy.options import IggyOptions
else:
    __getattr__ = lazily(__name__, IggyDestination="destination", IggyOptions="options")

__all__ = ["IggyDestination", "IggyOptions"]
