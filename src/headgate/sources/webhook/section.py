"""The configuration of a `webhook` source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headgate.config.base import Duration, Name, Size
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.config.webhook import WebhookSecret, WebhookSignatureSection
from headgate.runtime.access import is_loopback
from headgate.sources.webhook.options import ReaderOptions, ServerOptions

__all__ = ["WebhookSourceSection"]


class WebhookSourceSection(SourceTable):
    """HTTP requests. Each is on disk before it is answered, and stays there until it is delivered."""

    type: Literal["webhook"]
    host: str = Field(
        "127.0.0.1", description="Address to listen on. Other than loopback, `keys` or `signature` is required."
    )
    port: int = Field(8730, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    path: str = Field(
        "/webhooks", pattern=r"^(/|(/[A-Za-z0-9._~-]+)+)$", description="Requests to it and below it are accepted."
    )
    keys: dict[Name, WebhookSecret] = Field(
        default_factory=dict, description='Clients and their keys: `{ shop = "${SHOP_KEY}" }`.'
    )
    signature: WebhookSignatureSection | None = Field(None, description="How requests are signed.")
    body: Literal["text", "binary"] = option(
        ServerOptions,
        "body",
        description="`text`: bodies are UTF-8, others are refused; `binary`: any bytes, and `body` is binary.",
    )
    event_schema: str | None = Field(
        None, min_length=1, description='Also the column `event`, the body parsed: `"type string, amount double"`.'
    )
    max_body: Size = option(ServerOptions, "max_body", gt=0, description="A longer body is refused.")
    max_requests: int = option(
        ServerOptions, "max_requests", ge=1, le=10_000, description="Requests at a time; each may hold `max_body`."
    )
    request_timeout: Duration = option(
        ServerOptions, "request_timeout_s", gt=0, description="How long a client may take to send a request."
    )
    max_spool_bytes: Size = option(
        ServerOptions, "max_spool_bytes", ge=1 << 16, description="When so much waits for delivery, senders wait."
    )
    idempotency_window: Duration = option(
        ServerOptions, "window_s", description="How long a request is known by its idempotency key."
    )
    idempotency_keys: int = option(ServerOptions, "max_keys", ge=0, description="How many keys are known at most.")
    max_rows_per_batch: int = option(
        ReaderOptions, "max_offsets_per_trigger", ge=1, description="The most rows one batch may take."
    )

    @model_validator(mode="after")
    def _public_needs_proof(self) -> WebhookSourceSection:
        if not is_loopback(self.host) and not self.keys and self.signature is None:
            raise ValueError(f"host {self.host} is not loopback, so anybody could send: set keys or signature")
        return self

    @property
    def listens_on(self) -> tuple[str, int]:
        return self.host, self.port
