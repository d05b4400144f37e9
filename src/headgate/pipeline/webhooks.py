"""From the configuration to webhook sources and destinations."""

from __future__ import annotations

from pathlib import Path

from headgate.config.destinations import WebhookDestinationSection
from headgate.config.sources import WebhookSourceSection
from headgate.config.webhook import WebhookSignatureSection
from headgate.destinations.webhook import WebhookDestination, WebhookOptions
from headgate.sources.webhook.options import ServerOptions
from headgate.sources.webhook.source import WebhookSource
from headgate.wire.webhook import Signing

__all__ = ["webhook_destination", "webhook_source"]


def webhook_source(name: str, section: WebhookSourceSection, *, origin: str, spool: Path) -> WebhookSource:
    """The spool belongs to the source, not to a pipeline: a reset must not throw away what was accepted."""
    options = ServerOptions(
        spool=spool,
        origin=origin,
        host=section.host,
        port=section.port,
        path=section.path,
        keys={client: key.get_secret_value() for client, key in section.keys.items()},
        signing=_signing(section.signature),
        body=section.body,
        max_body=section.max_body,
        max_requests=section.max_requests,
        request_timeout_s=section.request_timeout,
        max_spool_bytes=section.max_spool_bytes,
        window_s=section.idempotency_window,
        max_keys=section.idempotency_keys,
    )
    return WebhookSource(
        name, options, max_rows_per_batch=section.max_rows_per_batch, event_schema=section.event_schema
    )


def webhook_destination(name: str, section: WebhookDestinationSection) -> WebhookDestination:
    options = WebhookOptions(
        url=section.url.get_secret_value(),
        headers={header: value.get_secret_value() for header, value in section.headers.items()},
        signing=_signing(section.signature),
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
    return WebhookDestination(name, options)


def _signing(section: WebhookSignatureSection | None) -> Signing | None:
    if section is None:
        return None
    secrets = tuple(secret.get_secret_value() for secret in section.secrets)
    return Signing(section.scheme, secrets, section.header, section.tolerance)
