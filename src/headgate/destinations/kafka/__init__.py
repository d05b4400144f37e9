"""Kafka as a destination: idempotent producers, and replays recognised by what lies last in each partition."""

from __future__ import annotations

from headgate.destinations.kafka.destination import KafkaDestination
from headgate.destinations.kafka.options import KafkaOptions
from headgate.destinations.kafka.pool import close_idle_clients

__all__ = ["KafkaDestination", "KafkaOptions", "close_idle_clients"]
