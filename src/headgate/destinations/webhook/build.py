"""From the configuration to a `webhook` destination."""

from __future__ import annotations

from headgate.config.webhook import signing_of
from headgate.destinations.context import DestinationContext
from headgate.destinations.webhook.destination import WebhookDestination
from headgate.destinations.webhook.options import WebhookOptions
from headgate.destinations.webhook.section import WebhookDestinationSection

__all__ = ["build"]


def build(section: WebhookDestinationSection, context: DestinationContext) -> WebhookDestination:
    options = WebhookOptions(
        url=section.url.get_secret_value(),
        headers={header: value.get_secret_value() for header, value in section.headers.items()},
        signing=signing_of(section.signature),
        content_type=section.content_type,
        batch_rows=section.batch_rows,
        batch_format=section.batch_format,
        max_batch_bytes=section.max_batch_bytes,
        timeout_s=section.timeout,
        retry_for_s=section.retry_for,
        concurrency=section.concurrency,
        connections=section.connections,
        tls_ca=str(section.tls_ca or ""),
    )
    return WebhookDestination(context.name, options)
