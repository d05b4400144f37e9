"""The `broker` destination: rows as events of the broker in PostgreSQL."""

from __future__ import annotations

from headgate.destinations.broker.destination import BrokerDestination

__all__ = ["BrokerDestination"]
