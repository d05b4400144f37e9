"""The `console` destination: every row as one line on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.console.destination import ConsoleDestination
else:
    __getattr__ = lazily(__name__, ConsoleDestination="destination")

__all__ = ["ConsoleDestination"]
