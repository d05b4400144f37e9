"""The `log` destination: rows as messages of the log in PostgreSQL that the gateway serves to Kafka clients."""

from __future__ import annotations

from headgate.destinations.log.destination import LogDestination

__all__ = ["LogDestination"]
