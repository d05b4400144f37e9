"""The `webhook` destination: rows as HTTP requests, signed and tried again."""

from __future__ import annotations

from headgate.destinations.webhook.destination import WebhookDestination
from headgate.destinations.webhook.options import WebhookOptions

__all__ = ["WebhookDestination", "WebhookOptions"]
