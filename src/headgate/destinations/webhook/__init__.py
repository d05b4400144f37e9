"""The `webhook` destination: rows as HTTP requests, signed and tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.webhook.destination import WebhookDestination
    from headgate.destinations.webhook.options import WebhookOptions
else:
    __getattr__ = lazily(__name__, WebhookDestination="destination", WebhookOptions="options")

__all__ = ["WebhookDestination", "WebhookOptions"]
