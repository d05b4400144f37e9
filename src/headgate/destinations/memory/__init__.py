"""The `memory` destination: keeps the last rows in the process, for tests and for looking at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.memory.destination import MemoryDestination, Message
else:
    __getattr__ = lazily(__name__, MemoryDestination="destination", Message="destination")

__all__ = ["MemoryDestination", "Message"]
