"""Kafka as a destination: idempotent producers, and replays recognised by what lies last in each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.kafka.destination import KafkaDestination
    from headgate.destinations.kafka.options import KafkaOptions
    from headgate.destinations.kafka.pool import close_idle_clients
else:
    __getattr__ = lazily(__name__, KafkaDestination="destination", KafkaOptions="options", close_idle_clients="pool")

__all__ = ["KafkaDestination", "KafkaOptions", "close_idle_clients"]
