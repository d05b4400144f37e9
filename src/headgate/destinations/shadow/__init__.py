"""The `shadow` destination: topics of the log mirrored to another Kafka cluster, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.shadow.destination import ShadowDestination
else:
    __getattr__ = lazily(__name__, ShadowDestination="destination")

__all__ = ["ShadowDestination"]
