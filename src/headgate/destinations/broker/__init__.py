"""The `broker` destination: rows as events of the broker in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.broker.destination import BrokerDestination
else:
    __getattr__ = lazily(__name__, BrokerDestination="destination")

__all__ = ["BrokerDestination"]
