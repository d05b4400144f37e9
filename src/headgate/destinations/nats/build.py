"""From the configuration to a `nats` destination."""

from __future__ import annotations

from typing import Any

from headgate.config.models import NatsSection
from headgate.destinations.context import DestinationContext
from headgate.destinations.nats.destination import NatsDestination
from headgate.destinations.nats.options import NatsOptions
from headgate.destinations.nats.section import NatsDestinationSection

__all__ = ["build", "nats_credentials", "nats_options"]


def build(section: NatsDestinationSection, context: DestinationContext) -> NatsDestination:
    options = nats_options(section, context.nats, context.nats_url)
    # The server fences off a second writer, so unlike for other kinds the user may know better than the pipelines show.
    exclusive = context.is_alone if section.exclusive is None else section.exclusive
    return NatsDestination(context.name, options, exclusive, zstd=section.compression == "zstd")


def nats_options(section: NatsDestinationSection, server: NatsSection, nats_url: str | None) -> NatsOptions:
    """The stream from the destination, address and credentials from `[nats]` unless the destination has its own."""
    url = section.url.get_secret_value() if section.url else nats_url
    return NatsOptions(
        url=url or server.url.get_secret_value(),
        stream=section.stream,
        subjects=section.subjects,
        storage=section.storage,
        replicas=section.replicas,
        max_age_s=section.max_age,
        max_bytes=-1 if section.max_bytes == 0 else section.max_bytes,
        discard=section.discard,
        duplicate_window_s=section.duplicate_window,
        window=section.window,
        ack_timeout_s=section.ack_timeout,
        **nats_credentials(server),
    )


def nats_credentials(server: NatsSection) -> dict[str, Any]:
    """The part of `NatsOptions` that says who we are."""
    secrets = {"password": server.password, "token": server.token, "nkey_seed": server.nkey_seed}
    files = {
        "creds_file": server.credentials,
        "tls_ca": server.tls_ca,
        "tls_cert": server.tls_cert,
        "tls_key": server.tls_key,
    }
    return {
        "user": server.user or "",
        "tls_first": server.tls_first,
        **{name: secret.get_secret_value() for name, secret in secrets.items() if secret},
        **{name: str(path) for name, path in files.items() if path},
    }
