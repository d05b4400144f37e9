"""The configuration of a `webhook` destination."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText, Size
from headgate.config.kinds import DestinationTable
from headgate.config.options import option
from headgate.config.webhook import WebhookSignatureSection
from headgate.destinations.webhook.options import WebhookOptions

__all__ = ["WebhookDestinationSection"]


class WebhookDestinationSection(DestinationTable):
    """HTTP POST to one host, signed. A row is delivered when it is answered with a 2xx."""

    has_partitions: ClassVar[bool] = False

    type: Literal["webhook"]
    url: SecretText = Field(description="`{stream}` and `{topic}` are filled in behind the host, percent-encoded.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    headers: dict[str, SecretText] = Field(
        default_factory=dict, description='Sent with every request: `{ Authorization = "Bearer ${KEY}" }`.'
    )
    signature: WebhookSignatureSection | None = Field(None, description="How requests are signed.")
    content_type: str = option(
        WebhookOptions, "content_type", pattern=r"^[!-~][ -~]*$", description="Of a request with one row."
    )
    batch_rows: int = option(
        WebhookOptions, "batch_rows", ge=1, le=100_000, description="Rows in one request; more than 1 must be JSON."
    )
    batch_format: Literal["json", "ndjson"] = option(
        WebhookOptions, "batch_format", description="Several rows as an array, or as lines."
    )
    max_batch_bytes: Size = option(
        WebhookOptions, "max_batch_bytes", gt=0, description="The most bytes of several rows in one request."
    )
    timeout: Duration = option(WebhookOptions, "timeout_s", gt=0, description="How long to wait for an answer.")
    retry_for: Duration = option(
        WebhookOptions,
        "retry_for_s",
        description="How long a topic is tried again in all within a batch, after 408, 429, 5xx or a timeout.",
    )
    concurrency: int = option(
        WebhookOptions,
        "concurrency",
        ge=1,
        le=256,
        description="Requests of one topic at a time; above 1, rows without a partition key overtake.",
    )
    connections: int = option(
        WebhookOptions, "connections", ge=1, le=1024, description="Requests of all topics at a time, for each task."
    )
    tls_ca: Path | None = Field(None, description="Certificates to trust instead of the system's (PEM).")
