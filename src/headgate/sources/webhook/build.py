"""From the configuration to a `webhook` source."""

from __future__ import annotations

from headgate.config.webhook import signing_of
from headgate.sources.context import SourceContext
from headgate.sources.webhook.options import ServerOptions
from headgate.sources.webhook.section import WebhookSourceSection
from headgate.sources.webhook.source import WebhookSource

__all__ = ["build"]


def build(section: WebhookSourceSection, context: SourceContext) -> WebhookSource:
    """The spool belongs to the source, not to a pipeline: a reset must not throw away what was accepted."""
    options = ServerOptions(
        spool=context.data_dir / "webhooks" / context.name,
        origin=context.origin,
        host=section.host,
        port=section.port,
        path=section.path,
        keys={client: key.get_secret_value() for client, key in section.keys.items()},
        signing=signing_of(section.signature),
        body=section.body,
        max_body=section.max_body,
        max_requests=section.max_requests,
        request_timeout_s=section.request_timeout,
        max_spool_bytes=section.max_spool_bytes,
        window_s=section.idempotency_window,
        max_keys=section.idempotency_keys,
    )
    return WebhookSource(
        context.name, options, max_rows_per_batch=section.max_rows_per_batch, event_schema=section.event_schema
    )
