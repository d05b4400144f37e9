"""The `discard` destination: counts rows and drops them, to see what a pipeline does without a destination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.discard.destination import DiscardDestination
else:
    __getattr__ = lazily(__name__, DiscardDestination="destination")

__all__ = ["DiscardDestination"]
