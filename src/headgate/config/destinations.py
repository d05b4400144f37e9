"""The tables under `[destinations]`: one class per kind, with what each key means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText, Section, Size

__all__ = [
    "ConsoleDestinationSection",
    "DestinationSection",
    "DiscardDestinationSection",
    "MemoryDestinationSection",
    "NatsDestinationSection",
    "WebhookDestinationSection",
    "PluginDestinationSection",
]


class NatsDestinationSection(Section):
    """A JetStream stream. Every message is acknowledged and carries an id by which replays are dropped."""

    type: Literal["nats"]
    url: SecretText | None = Field(None, description="Another server than `[nats]`.")
    stream: str = Field(pattern=r"^[A-Za-z0-9_-]{1,255}$", description="Name of the stream; created when missing.")
    subjects: tuple[str, ...] = Field(min_length=1, description='Subjects the stream keeps, such as `["demo.>"]`.')
    storage: Literal["file", "memory"] = Field("file", description="Where the server keeps the stream.")
    replicas: int = Field(1, ge=1, le=5, description="Copies in a NATS cluster.")
    max_age: Duration = Field(0.0, description="Drop messages older than this; 0 keeps them.")
    max_bytes: Size = Field(0, description="The most the stream may hold; 0 means no limit.")
    duplicate_window: Duration = Field(120.0, description="How long the server remembers message ids.")
    window: int = Field(4000, ge=1, le=1_000_000, description="Messages sent and not yet acknowledged, at most.")
    ack_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an acknowledgement.")
    compression: Literal["none", "zstd"] = Field(
        "none", description="`zstd`: each message by itself, with dictionaries learnt from the data."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the stream: then a second writer is fenced off, and a replay is "
        "recognised whatever the outage lasted. On by default for CDC pipelines.",
    )


class MemoryDestinationSection(Section):
    """Keeps the last rows in the process, for tests and for `headgate status`."""

    type: Literal["memory"]
    max_rows: int = Field(10_000, ge=1, description="Older rows are forgotten.")


class ConsoleDestinationSection(Section):
    """Prints every row as one line on standard output."""

    type: Literal["console"]
    max_rows_per_batch: int = Field(1000, ge=1, description="More rows in one batch are counted, not printed.")


class DiscardDestinationSection(Section):
    """Counts rows and drops them, to see what a pipeline does without a destination."""

    type: Literal["discard"]


class PluginDestinationSection(Section):
    """A destination from an installed package, found by its entry point."""

    type: Literal["plugin"]
    plugin: str = Field(min_length=1, description="Name of the entry point.")
    options: dict[str, Any] = Field(default_factory=dict, repr=False, description="Whatever the plugin takes.")


class WebhookDestinationSection(Section):
    """HTTP POST to one host, signed. A row is delivered when it is answered with a 2xx."""

    type: Literal["webhook"]
    url: SecretText = Field(description="`{stream}` and `{topic}` are filled in behind the host, percent-encoded.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    headers: dict[str, SecretText] = Field(
        default_factory=dict, description='Sent with every request: `{ Authorization = "Bearer ${KEY}" }`.'
    )
    signature: WebhookSignatureSection | None = Field(None, description="How requests are signed.")
    content_type: str = Field("application/json", pattern=r"^[!-~][ -~]*$", description="Of a request with one row.")
    batch_rows: int = Field(1, ge=1, le=100_000, description="Rows in one request; more than 1 must be JSON.")
    batch_format: Literal["json", "ndjson"] = Field("json", description="Several rows as an array, or as lines.")
    max_batch_bytes: Size = Field(1 << 20, gt=0, description="The most bytes of several rows in one request.")
    timeout: Duration = Field(10.0, gt=0, description="How long to wait for an answer.")
    retry_for: Duration = Field(
        60.0, description="How long a topic is tried again in all within a batch, after 408, 429, 5xx or a timeout."
    )
    concurrency: int = Field(
        1, ge=1, le=256, description="Requests of one topic at a time; above 1, rows without a partition key overtake."
    )
    connections: int = Field(16, ge=1, le=1024, description="Requests of all topics at a time, for each task.")
    tls_ca: Path | None = Field(None, description="Certificates to trust instead of the system's (PEM).")


DestinationSection = Annotated[
    NatsDestinationSection
    | PluginDestinationSection
    | MemoryDestinationSection
    | ConsoleDestinationSection
    | DiscardDestinationSection,
    Field(discriminator="type"),
]
