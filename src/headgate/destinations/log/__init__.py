"""The `log` destination: rows as messages of the log in PostgreSQL that the gateway serves to Kafka clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.log.destination import LogDestination
else:
    __getattr__ = lazily(__name__, LogDestination="destination")

__all__ = ["LogDestination"]
