"""The tables under `[sources]`: one class per kind, with what each key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import Duration, Name, PluginOptions, SecretText, Section, Size
from headgate.config.kafka import KafkaConnection
from headgate.config.webhook import WebhookSecret, WebhookSignatureSection
from headgate.runtime.access import is_loopback

__all__ = [
    "AtprotoSourceSection",
    "BrokerSourceSection",
    "DebeziumSection",
    "FilesSourceSection",
    "KafkaSourceSection",
    "LogSourceSection",
    "PluginSourceSection",
    "PostgresCdcSourceSection",
    "PostgresPollSourceSection",
    "RandomSourceSection",
    "SourceSection",
    "WebhookSourceSection",
]


class RandomSourceSection(Section):
    """Made-up orders: the same seed gives the same rows, whatever crashes in between."""

    type: Literal["random"]
    rows_per_second: int = Field(1000, ge=0, description="Rate of arrival; 0 means all at once.")
    rows: int = Field(0, ge=0, description="How many rows in all; 0 means without end.")
    max_rows_per_batch: int = Field(100_000, ge=1, description="The most rows one batch may take.")
    partitions: int = Field(1, ge=1, le=1024, description="Tasks that read one batch. Above 1, order is per task.")
    payload_bytes: int = Field(64, ge=0, le=1_000_000, description="Length of the column `note`.")
    customers: int = Field(1000, ge=1, description="How many distinct values the column `customer` has.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Chooses the rows.")

    @model_validator(mode="after")
    def _finite(self) -> RandomSourceSection:
        if self.rows_per_second == 0 and self.rows == 0:
            raise ValueError("rows_per_second = 0 (all at once) needs an end: set rows")
        return self


class DebeziumSection(Section):
    """Debezium's own options, with its defaults, `_` in place of `.`; see docs/debezium.md."""

    topic_prefix: str | None = Field(None, description="`source.name` of events; the slot's name unless given.")
    time_precision_mode: Literal["adaptive", "connect", "isostring"] = Field("adaptive", description="Dates and times.")
    decimal_handling_mode: Literal["precise", "double", "string"] = Field("precise", description="Numeric and money.")
    interval_handling_mode: Literal["numeric", "string"] = Field("numeric", description="Intervals.")
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = Field("bytes", description="Bytea.")
    hstore_handling_mode: Literal["json", "map"] = Field("json", description="Hstore.")
    tombstones_on_delete: bool = Field(True, description="An empty message behind each delete.")
    skipped_operations: tuple[Literal["c", "u", "d", "t", "none"], ...] = Field(
        ("t",), description="Operations that no event is made of."
    )
    schemas_enable: bool = Field(False, description="Each event with its schema, as `schema` and `payload`.")
    snapshot_mode: Literal["initial", "no_data"] = Field(
        "initial", description="Whether a new pipeline begins with the rows that are there already."
    )
    heartbeat_interval_ms: int = Field(0, ge=0, description="How often a heartbeat is sent; 0 sends none.")
    topic_heartbeat_prefix: str = Field("__debezium-heartbeat", description="Its topic is `{this}.{topic_prefix}`.")


class PostgresCdcSourceSection(Section):
    """Every committed change of the tables of a publication, in commit order."""

    type: Literal["postgres-cdc"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    slot: str = Field(pattern=r"^[a-z0-9_]{1,63}$", description="The replication slot; created when missing.")
    publication: str = Field(min_length=1, description="The publication; several separated by commas.")
    tables: tuple[str, ...] = Field(
        (), description='Create a missing publication for these: `["public.users"]`, or `["*"]` for all tables.'
    )
    format: Literal["msgpack", "json", "debezium"] = Field("msgpack", description="The envelope of an event.")
    debezium: DebeziumSection = Field(
        default_factory=DebeziumSection, description='Of the format `debezium`: `{ topic_prefix = "shop" }`.'
    )
    subject: str = Field(
        "cdc.{schema}.{table}.{op}", description="The topic of an event; names are escaped where they need to be."
    )
    max_rows_per_batch: int = Field(250_000, ge=1, description="The most changes one batch may take.")
    max_bytes_per_batch: Size = Field(64 << 20, gt=0, description="The most WAL bytes one batch may take.")
    max_spool_bytes: Size = Field(1 << 30, gt=0, description="When so much waits for delivery, the rest stays in WAL.")
    failover: bool = Field(False, description="Make the slot survive a failover (PostgreSQL 17 and newer).")
    images: bool = Field(False, description="Also the columns `_key`, `_before` and `_after`, for transforms.")


class PluginSourceSection(Section):
    """A source from an installed package, found by its entry point."""

    type: Literal["plugin"]
    plugin: str = Field(min_length=1, description="Name of the entry point.")
    options: PluginOptions = Field(default_factory=dict, repr=False, description="Whatever the plugin takes.")


class WebhookSourceSection(Section):
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
    body: Literal["text", "binary"] = Field(
        "text", description="`text`: bodies are UTF-8, others are refused; `binary`: any bytes, and `body` is binary."
    )
    event_schema: str | None = Field(
        None, min_length=1, description='Also the column `event`, the body parsed: `"type string, amount double"`.'
    )
    max_body: Size = Field(1 << 20, gt=0, description="A longer body is refused.")
    max_requests: int = Field(128, ge=1, le=10_000, description="Requests at a time; each may hold `max_body`.")
    request_timeout: Duration = Field(10.0, gt=0, description="How long a client may take to send a request.")
    max_spool_bytes: Size = Field(1 << 30, ge=1 << 16, description="When so much waits for delivery, senders wait.")
    idempotency_window: Duration = Field(86_400.0, description="How long a request is known by its idempotency key.")
    idempotency_keys: int = Field(500_000, ge=0, description="How many keys are known at most.")
    max_rows_per_batch: int = Field(10_000, ge=1, description="The most rows one batch may take.")

    @model_validator(mode="after")
    def _public_needs_proof(self) -> WebhookSourceSection:
        if not is_loopback(self.host) and not self.keys and self.signature is None:
            raise ValueError(f"host {self.host} is not loopback, so anybody could send: set keys or signature")
        return self


class PostgresPollSourceSection(Section):
    """The rows of a table in the order of a column that grows; delivered ones may be deleted or marked."""

    type: Literal["postgres-poll"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    table: str = Field(min_length=1, description='`orders`, `shop.orders`, or `shop."odd.name"`.')
    tracking_column: str = Field(min_length=1, description="Grows with every row that is new or changed.")
    key_columns: tuple[str, ...] = Field((), description="What identifies a row; the primary key unless given.")
    columns: tuple[str, ...] = Field((), description="The columns to read; all unless given.")
    text_columns: tuple[str, ...] = Field((), description="Columns to read as PostgreSQL's own text.")
    filter: str = Field("", description="SQL: only rows for which it is true.")
    max_rows_per_batch: int = Field(100_000, ge=1, description="The most rows one batch may take.")
    partitions: int = Field(1, ge=1, le=1024, description="Tasks that read one batch. Above 1, order is per task.")
    overlap: Duration = Field(
        600.0, description="How far behind the last row late ones are looked for; of a tracking column of time."
    )
    overlap_values: int = Field(10_000, ge=0, description="The same of a tracking column of whole numbers.")
    future_rows: Literal["wait", "read"] = Field(
        "wait", description="Rows dated after the server's clock wait for their time, or are read at once."
    )
    poll_interval: Duration = Field(1.0, description="How often a table that had nothing new is asked.")
    delete_after_read: bool = Field(False, description="Delete rows once they are delivered and recorded.")
    processed_column: str = Field("", description="A boolean column that is set instead.")
    destructive: bool | None = Field(None, description="Whether rows may be taken away at all; `false` forbids it.")

    @model_validator(mode="after")
    def _names_without_commas(self) -> PostgresPollSourceSection:
        if any("," in name for name in (*self.key_columns, *self.columns, *self.text_columns)):
            raise ValueError("a column whose name has a comma cannot be listed; leave the list out")
        return self

    @model_validator(mode="after")
    def _one_way_to_take_away(self) -> PostgresPollSourceSection:
        if self.delete_after_read and self.processed_column:
            raise ValueError("delete_after_read and processed_column exclude one another: set one")
        if self.destructive is False and (self.delete_after_read or self.processed_column):
            raise ValueError("destructive = false forbids delete_after_read and processed_column")
        return self


class FilesSourceSection(Section):
    """Lines of files that grow, rotate, come and go; or Parquet files as they appear."""

    type: Literal["files"]
    path: str = Field(min_length=1, description="A directory, a pattern such as `/var/log/*.log`, or a file.")
    format: Literal["jsonl", "csv", "parquet", "text"] = Field(description="What the files hold.")
    row_schema: str = Field("", description='The columns: `"id bigint, name string"`. Text needs none.')
    header: bool = Field(False, description="CSV: the first line of a file names the columns, and is no row.")
    mode: Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"] = Field(
        "PERMISSIVE", description="A line that does not parse: kept in `_corrupt_record`, left out, or an error."
    )
    start_at: Literal["beginning", "end"] = Field(
        "beginning", description="Of files that are there at the first start."
    )
    max_bytes_per_batch: Size = Field(64 << 20, gt=0, description="The most bytes one batch may take.")
    max_files_per_batch: int = Field(200, ge=1, description="The most files one batch may take from.")
    max_line_bytes: Size = Field(16 << 20, gt=0, description="A longer line is an error.")
    partitions: int = Field(1, ge=1, le=1024, description="Tasks that read one batch. Above 1, order is per task.")
    poll_interval: Duration = Field(0.2, description="How often files that had nothing new are looked at.")
    finished_after: Duration = Field(0.0, description="A file that did not change for so long is finished; 0: never.")
    delete_after_read: bool = Field(False, description="Remove finished files once they are delivered and recorded.")
    fail_on_data_loss: bool = Field(True, description="Whether lines that are gone before they were read are an error.")

    @model_validator(mode="after")
    def _fits_together(self) -> FilesSourceSection:
        if not self.row_schema and (self.format == "jsonl" or (self.format == "csv" and not self.header)):
            raise ValueError(f'format = "{self.format}" needs row_schema, such as "id bigint, name string"')
        if self.header and self.format != "csv":
            raise ValueError('header = true is for format = "csv"')
        if self.delete_after_read and not self.finished_after and self.format != "parquet":
            raise ValueError("delete_after_read needs finished_after, to know when nothing more is written to a file")
        return self


class _TopicsSection(Section):
    """What the sources that read topics share."""

    topics: tuple[str, ...] = Field((), description='Names of topics: `["orders"]`.')
    topic_pattern: str = Field("", description="Or a regular expression that names match as a whole.")
    start_at: Literal["earliest", "latest"] = Field("earliest", description="Where the first start begins.")
    max_rows_per_batch: int = Field(100_000, ge=1, description="The most messages one batch may take.")
    partitions: int = Field(0, ge=0, le=1024, description="Tasks that read a batch, if more than the topics' own.")
    poll_interval: Duration = Field(0.1, description="How often topics that had nothing new are looked at.")
    fail_on_data_loss: bool = Field(True, description="Whether messages gone before they were read are an error.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("set one of topics and topic_pattern")
        if any("," in topic for topic in self.topics):
            raise ValueError("a topic's name has no comma")
        return self


class KafkaSourceSection(_TopicsSection, KafkaConnection):
    """Messages of topics of a Kafka cluster."""

    type: Literal["kafka"]
    group: str = Field(
        "", description="A group whose offsets are moved on as messages are delivered, to watch its lag."
    )
    request_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an answer.")


class LogSourceSection(_TopicsSection):
    """Messages of the log in PostgreSQL, which Kafka clients write through the gateway."""

    type: Literal["log"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")


class BrokerSourceSection(Section):
    """Events of the broker in PostgreSQL, as a group of it gets them."""

    type: Literal["broker"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    broker_schema: str = Field("headgate", pattern=r"^[a-z_][a-z0-9_]{0,39}$", description="The broker's schema.")
    group: str = Field(min_length=1, max_length=255, description="The group that reads; made when missing.")
    topics: tuple[str, ...] = Field((), description='Topics to subscribe to: `["orders"]`; all events unless given.')
    condition: str = Field("", description="Or a condition over `e` (the event) and `s` (the subscription).")
    params: dict[str, Any] = Field(default_factory=dict, description="`s.params` of the condition.")
    max_rows_per_batch: int = Field(100_000, ge=1, description="The most events one batch may take.")
    partitions: int = Field(1, ge=1, le=1024, description="Tasks that read one batch. Above 1, order is per task.")
    poll_interval: Duration = Field(0.05, description="How often a group that had nothing new is asked.")
    fail_on_data_loss: bool = Field(True, description="Whether events gone before they were read are an error.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if self.topics and self.condition:
            raise ValueError("set one of topics and condition")
        if any("," in topic for topic in self.topics):
            raise ValueError("a topic with a comma cannot be listed; use a condition")
        return self


class AtprotoSourceSection(Section):
    """Events of an AT Protocol relay: a row per change of a record, and one per change of an account."""

    type: Literal["atproto"]
    url: str = Field("", pattern=r"^(wss?://.+)?$", description="The relay: `wss://relay.example`.")
    path: Path | None = Field(None, description="Or the directory of the event log of a relay of headgate's.")
    start_at: Literal["earliest", "latest"] = Field("latest", description="Where the first start begins.")
    max_rows_per_batch: int = Field(10_000, ge=1, description="The most events one batch may take.")
    max_spool_bytes: Size = Field(1 << 30, ge=1 << 26, description="When so much waits for delivery, the relay waits.")
    partitions: int = Field(
        1, ge=1, le=1024, description="Above 1, a task for each file of the log; order is per task."
    )
    fail_on_data_loss: bool = Field(True, description="Whether events gone before they were read are an error.")

    @model_validator(mode="after")
    def _one_way_to_read(self) -> Self:
        if bool(self.url) == bool(self.path):
            raise ValueError("set one of url and path")
        return self


SourceSection = Annotated[
    RandomSourceSection
    | AtprotoSourceSection
    | BrokerSourceSection
    | FilesSourceSection
    | KafkaSourceSection
    | LogSourceSection
    | PluginSourceSection
    | PostgresCdcSourceSection
    | PostgresPollSourceSection
    | WebhookSourceSection,
    Field(discriminator="type"),
]
