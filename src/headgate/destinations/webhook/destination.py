"""The `webhook` destination: every row is answered with a 2xx before its batch is done.

A replay carries the same ids (`Idempotency-Key` and `webhook-id`), by which a receiver can tell it. A message goes to
the configured host and nowhere else: redirects are refused, and a topic's text stays one part of the path.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.webhook.options import WebhookOptions
from headgate.destinations.webhook.sender import WebhookSender
from headgate.model import ConfigError

__all__ = ["WebhookDestination"]

_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class WebhookDestination(Destination):
    """HTTP POST, signed and tried again."""

    name: str
    options: WebhookOptions

    def ensure(self) -> None:
        """Nothing to create; a certificate file that cannot be read is better known now."""
        self._tls()

    def check(self) -> str:
        self.ensure()
        return super(WebhookDestination, self).check()

    def details(self) -> dict[str, Any]:
        return {"address": self.options.address}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        if self.options.needs_stream and not lane.stream:
            raise ConfigError(
                "url asks for a stream, and the rows name none",
                where=f"destinations.{self.name}.url",
                remedy="route the rows to a stream, or take {stream} out of url",
            )
        with asyncio.Runner() as runner:
            client = self._client()
            try:
                yield WebhookSender(self.name, self.options, lane, runner, client)
            finally:
                runner.run(client.aclose())

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(None, connect=min(_CONNECT_S, self.options.timeout_s))  # the rest has its own limit
        limits = httpx.Limits(max_connections=self.options.connections)
        client = httpx.AsyncClient(
            verify=self._tls(), timeout=timeout, limits=limits, follow_redirects=False, trust_env=False
        )
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # requests know nothing of each other
        return client

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.options.url.startswith("https"):
            return False  # making a context takes longer than a request
        try:
            return ssl.create_default_context(cafile=self.options.tls_ca or None)
        except OSError as error:
            raise ConfigError(
                f"cannot read the certificates: {error}",
                where=f"destinations.{self.name}.tls_ca",
                remedy="give the path of a PEM file",
            ) from None
