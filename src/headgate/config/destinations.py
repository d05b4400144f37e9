"""The tables under `[destinations]`: one class per kind, with what each key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headgate.config.base import Duration, PluginOptions, SecretText, Section, Size
from headgate.config.kafka import KafkaConnection
from headgate.config.webhook import WebhookSignatureSection
from headgate.runtime.access import is_loopback

__all__ = [
    "BrokerDestinationSection",
    "ConsoleDestinationSection",
    "DestinationSection",
    "DiscardDestinationSection",
    "EventLogDestinationSection",
    "IggyDestinationSection",
    "KafkaDestinationSection",
    "LogDestinationSection",
    "MemoryDestinationSection",
    "NatsDestinationSection",
    "PluginDestinationSection",
    "TableDestinationSection",
    "WebhookDestinationSection",
]


class NatsDestinationSection(Section):
    """A JetStream stream. Every message is acknowledged and carries an id by which replays are dropped."""

    type: Literal["nats"]
    url: SecretText | None = Field(None, description="Another server than `[nats]`.")
    stream: str = Field(pattern=r"^[A-Za-z0-9_-]{1,255}$", description="Name of the stream; created when missing.")
    subjects: tuple[str, ...] = Field(min_length=1, description='Subjects the stream keeps, such as `["demo.>"]`.')
    storage: Literal["file", "memory"] = Field("file", description="Where the server keeps the stream.")
    replicas: int = Field(1, ge=1, le=5, description="Copies in a NATS cluster.")
    max_age: Duration | None = Field(
        None,
        description="Drop messages older than this; 0 keeps them. Left out: as the stream is; a new one keeps them.",
    )
    max_bytes: Size | None = Field(
        None,
        description="The most the stream may hold; 0 means no limit. Left out: as the stream is, a new one has none.",
    )
    discard: Literal["new", "old"] | None = Field(
        None,
        description="At `max_bytes`: `new` refuses messages, and the pipeline waits; `old` drops the oldest. Left out: "
        "`new`, and a stream with limits that drops old messages is refused.",
    )
    duplicate_window: Duration | None = Field(
        None, ge=0.1, description="How long the server remembers message ids. Left out: two minutes at least."
    )
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
    options: PluginOptions = Field(default_factory=dict, repr=False, description="Whatever the plugin takes.")


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


class KafkaDestinationSection(KafkaConnection):
    """Topics of a Kafka cluster. Every message is acknowledged by all replicas in sync, and carries its id."""

    type: Literal["kafka"]
    topic: str = Field(
        "{stream}.{topic}", description="Name of a topic whose rows have a stream; without one it is the row's topic."
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field("zstd", description="Of batches of messages.")
    linger: Duration = Field(0.005, description="How long messages wait for others to share a request with.")
    max_message_bytes: Size = Field(1_000_000, ge=1000, description="The largest message; topics have a limit, too.")
    queue_bytes: Size = Field(64 << 20, ge=1024, description="Messages waiting in a task, at most.")
    delivery_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an acknowledgement.")
    connect_timeout: Duration = Field(5.0, gt=0, description="How long to wait for the cluster's first answer.")
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the topics: then a replay begins behind what lies last in each "
        "partition. On by default for CDC pipelines, and for others not to be had.",
    )


class LogDestinationSection(Section):
    """The log in PostgreSQL that the gateway serves to Kafka clients. Works without a running gateway."""

    type: Literal["log"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    topic: str = Field(
        "{stream}.{topic}", description="Name of a topic whose rows have a stream; without one it is the row's topic."
    )
    partitions: int = Field(1, ge=1, le=10_000, description="Of topics that are made because a row goes there.")
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind what lies last in each partition. On by default for CDC pipelines, "
        "and for others not to be had.",
    )


class BrokerDestinationSection(Section):
    """Events of the broker in PostgreSQL, written by COPY."""

    type: Literal["broker"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    broker_schema: str = Field("headgate", pattern=r"^[a-z_][a-z0-9_]{0,39}$", description="The broker's schema.")
    topic: str = Field(
        "{stream}.{topic}", description="Topic of an event whose row has a stream; without one it is the row's topic."
    )
    payload: Literal["json", "text"] = Field(
        "json", description="`json`: payloads are JSON; `text`: any text, which becomes a JSON string."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind the last event. On by default for CDC pipelines, and for others "
        "not to be had.",
    )


class EventLogDestinationSection(Section):
    """A log of events in files of this machine, served by `headgate eventlog serve`."""

    type: Literal["eventlog"]
    path: Path | None = Field(None, description="Its directory, relative to `data_dir`.")
    topic: str = Field(
        "{stream}.{topic}", description="Topic of an event whose row has a stream; without one it is the row's topic."
    )
    segment_events: int = Field(10_000, ge=1, le=10_000_000, description="Events in one file.")
    segment_bytes: Size = Field(256 << 20, ge=1024, description="Where a file ends before that.")
    max_age: Duration = Field(72 * 3600.0, description="Remove files older than this; 0 keeps them.")
    max_bytes: Size = Field(0, description="The most the files may hold; 0 means no limit.")
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind the last event. On by default for CDC pipelines, and for others "
        "not to be had.",
    )
    host: str = Field("127.0.0.1", description="Where to serve it. Other than loopback, `token` is required.")
    port: int = Field(8740, ge=0, le=65535, description="Port to serve it on; 0 picks a free one.")
    token: SecretText | None = Field(None, min_length=1, description="Bearer token that every request must carry.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    max_connections: int = Field(1000, ge=1, description="Listeners at a time; further ones are refused.")

    @model_validator(mode="after")
    def _public_needs_token(self) -> EventLogDestinationSection:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(f"host {self.host} is not loopback, so a token is required: set token or token_file")
        return self


class TableDestinationSection(Section):
    """Parquet files, one directory per stream and topic. A batch is visible as a whole, and exactly once."""

    type: Literal["table"]
    path: SecretText | None = Field(
        None, description="A directory, relative to `data_dir`, or a URL such as `s3://bucket/path`."
    )
    compression: Literal["none", "snappy", "lz4", "zstd"] = Field("zstd", description="Of the files' columns.")


class IggyDestinationSection(Section):
    """Topics of an Apache Iggy server. Needs `pip install 'headgate[iggy]'`."""

    type: Literal["iggy"]
    server: str = Field("127.0.0.1:8090", min_length=3, description="`host:port` of the server.")
    stream: str = Field("headgate", min_length=1, description="Stream for rows that name none.")
    mode: Literal["direct"] = Field("direct", description="In the background nothing would be acknowledged.")
    user: str | None = Field(None, description="User name.")
    password: SecretText | None = Field(None, description="Password for `user`.")
    password_file: Path | None = Field(None, description="Read `password` from this file.")
    token: SecretText | None = Field(None, description="Personal access token, in place of user and password.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    tls: bool = Field(False, description="Encrypt the connection.")
    tls_domain: str | None = Field(None, description="Name in the server's certificate, if not the address's.")
    tls_ca: Path | None = Field(None, description="Certificate authority that signed the server's certificate.")
    max_rows_per_request: int = Field(1000, ge=1, le=100_000, description="Rows in one request.")
    connect_timeout: Duration = Field(5.0, gt=0, description="How long to wait for a connection.")
    send_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an acknowledgement.")


DestinationSection = Annotated[
    NatsDestinationSection
    | BrokerDestinationSection
    | EventLogDestinationSection
    | PluginDestinationSection
    | MemoryDestinationSection
    | ConsoleDestinationSection
    | DiscardDestinationSection
    | KafkaDestinationSection
    | LogDestinationSection
    | TableDestinationSection
    | IggyDestinationSection
    | WebhookDestinationSection,
    Field(discriminator="type"),
]
