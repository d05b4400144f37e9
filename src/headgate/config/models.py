"""`headgate.toml` as frozen models. What a key means is said here once and shown by `headgate schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from headgate.config.base import Duration, Name, SecretText, Section, Size
from headgate.config.broker import BrokerSection
from headgate.config.destinations import DestinationSection
from headgate.config.gateway import GatewaySection
from headgate.config.registry import RegistrySection
from headgate.config.relay import RelaySection
from headgate.config.routing import RouteTransform, RoutingSection
from headgate.config.sources import SourceSection
from headgate.config.transforms import TransformSection
from headgate.runtime.access import is_loopback

__all__ = [
    "Config",
    "ControlSection",
    "DeadLettersSection",
    "LoggingSection",
    "NatsSection",
    "PipelineSection",
    "PostgresSection",
    "ProjectSection",
    "SnapshotsSection",
    "SparkSection",
]

EMBEDDED = "embedded"
_MASTER = r"^(local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+)$"


class ProjectSection(Section):
    """The project as a whole."""

    name: Name = Field("headgate", description="Shown in logs and metrics, and part of every message id.")
    data_dir: Path = Field(
        Path(".headgate"), description="Embedded servers, checkpoints and state; relative to the configuration file."
    )


class PostgresSection(Section):
    """The PostgreSQL server."""

    url: SecretText = Field(
        SecretStr(EMBEDDED), description='`"embedded"`, or `postgres://user@host:port/database` of your own server.'
    )
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    version: Literal[16, 18] = Field(18, description="Major version of the embedded server.")

    @property
    def embedded(self) -> bool:
        return self.url.get_secret_value() == EMBEDDED


class NatsSection(Section):
    """The NATS server, used by destinations of type `nats` that name no other."""

    url: SecretText = Field(
        SecretStr(EMBEDDED), description='`"embedded"`, or `nats://host:port`, several separated by commas.'
    )
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    user: str | None = Field(None, description="User name.")
    password: SecretText | None = Field(None, description="Password for `user`.")
    password_file: Path | None = Field(None, description="Read `password` from this file.")
    token: SecretText | None = Field(None, description="Authentication token.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    nkey_seed: SecretText | None = Field(None, description="NKey seed (`SU...`).")
    nkey_seed_file: Path | None = Field(None, description="Read `nkey_seed` from this file.")
    credentials: Path | None = Field(None, description="A `.creds` file with a user JWT and its seed.")
    tls_ca: Path | None = Field(None, description="Certificate authority that signed the server's certificate.")
    tls_cert: Path | None = Field(None, description="Client certificate.")
    tls_key: Path | None = Field(None, description="Key of the client certificate.")
    tls_first: bool = Field(False, description="Start TLS before the server's greeting.")
    sync_interval: str = Field(
        "10s",
        pattern=r"^(always|\d+(ms|s|m))$",
        description='Embedded server: how often messages are forced to disk; `"always"` is safest, and slow.',
    )

    @property
    def embedded(self) -> bool:
        return self.url.get_secret_value() == EMBEDDED


class SparkSection(Section):
    """How Spark runs. The same file drives one machine and a cluster: only `master` differs."""

    master: str = Field(
        "local[4]", pattern=_MASTER, description="`local[N]`, `spark://host:7077`, `yarn`, `k8s://...`."
    )
    driver_memory: str = Field("1g", pattern=r"^\d+[kmgt]$", description="Heap of the driver's Java process.")
    ui: bool = Field(False, description="Serve Spark's own web page.")
    checkpoint_dir: str | None = Field(
        None, description="Where queries keep their offsets; on a cluster a path that the driver's restarts can see."
    )
    shared_data_dir: bool = Field(
        False,
        description="Executors see the driver's `data_dir`, on a shared file system. Otherwise those of a cluster read "
        "what they need from the driver's machine (`spark.driver.host` in `conf`).",
    )
    conf: dict[str, str] = Field(default_factory=dict, description="Further Spark settings; they win over headgate's.")


class ControlSection(Section):
    """The HTTP control plane."""

    host: str = Field("127.0.0.1", description="Address to listen on. Other than loopback, `token` is required.")
    port: int = Field(8710, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretText | None = Field(None, description="Bearer token that every request must carry.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")

    @model_validator(mode="after")
    def _public_needs_token(self) -> ControlSection:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(f"host {self.host} is not loopback, so a token is required: set token or token_file")
        return self


class LoggingSection(Section):
    """Logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least severe line shown.")
    format: Literal["logfmt", "json"] = Field("logfmt", description="One line an event, for people or for machines.")
    metrics_interval: Duration = Field(15.0, description="Between METRICS lines, at the level debug; 0 turns them off.")


class SnapshotsSection(Section):
    """Schemas and snapshots for consumers. Pipelines from a CDC source to a NATS destination have them."""

    enabled: bool = Field(True, description="Whether consumers may ask for snapshots.")
    stream: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_-]{0,255}$",
        description="The stream of snapshots; without it, INIT beside CDC, and INIT_NAME beside the stream NAME.",
    )
    bucket: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_-]{0,200}$",
        description="The bucket of schemas; without it, schemas beside CDC, and schemas_NAME beside the stream NAME.",
    )
    max_age: Duration = Field(7 * 86400.0, description="Drop snapshots older than this.")
    max_bytes: Size = Field(0, description="The most the stream of snapshots may hold; 0 means no limit.")
    chunk_rows: int = Field(10_000, ge=1, le=1_000_000, description="Rows in one message, as far as it has room.")
    method: Literal["export", "filter", "watermark"] = Field(
        "export",
        description="`export`: by a temporary slot; `filter`: without one; `watermark`: in short transactions.",
    )
    parallelism: int = Field(2, ge=1, le=64, description="Tasks that copy a table side by side.")
    timeout: Duration = Field(60.0, gt=0, description="How long to wait for running transactions.")


class DeadLettersSection(Section):
    """Rows that were refused, kept in the pipeline's directory until somebody looks at them."""

    max_rows: int = Field(1_000_000, ge=1, description="When so many are kept, the pipeline waits.")
    max_bytes: Size = Field(1 << 30, gt=0, description="When payloads of so many bytes are kept, the pipeline waits.")


class PipelineSection(Section):
    """One source, an ordered list of transforms, and where the rows go."""

    source: str = Field(description="Name of a table under `[sources]`.")
    destinations: tuple[str, ...] = Field(min_length=1, description="Names of tables under `[destinations]`.")
    transforms: tuple[TransformSection, ...] = Field((), description="Applied in this order.")
    topic: str | None = Field(
        None, min_length=1, description="Where each row goes; `{column}` is filled from the row. CDC rows know already."
    )
    format: Literal["json", "raw", "envelope"] | None = Field(
        None,
        description="`json`: all columns; `raw`: one column as it is; `envelope`: what a CDC source made of the event.",
    )
    payload_column: str | None = Field(None, description="The column that `raw` sends.")
    trigger: Literal["realtime", "batch"] | None = Field(
        None,
        description="`realtime`: rows are sent as they come; `batch`: together, batch by batch. Unless given, "
        "`realtime` where it can be: CDC on `local[N]` without transforms other than routes.",
    )
    ordering: Literal["total", "table", "key"] = Field(
        "total",
        description="What stays in order: all changes of a CDC source, those of a table, or those of a key. Unless "
        "`total`, the tasks of a batch share it, on as many executors as there are.",
    )
    tasks: int = Field(4, ge=1, le=1024, description="How many tasks share a batch, unless `ordering` is `total`.")
    trigger_interval: Duration = Field(
        0.0, description="Least time between two batches; 0 means at once. Other than 0 it means `batch`."
    )
    enabled: bool = Field(True, description="Whether `headgate run` starts it.")
    routing: RoutingSection = Field(default_factory=RoutingSection, description="Where each row goes.")
    failure_threshold: int = Field(
        16, ge=1, description="Failures to complete a batch, in a row, that make the status `degraded`."
    )
    stop_grace: Duration = Field(30.0, description="How long a stop waits for the batch that is being delivered.")
    dead_letters: DeadLettersSection = Field(default_factory=DeadLettersSection, description="Rows nobody could take.")
    snapshots: SnapshotsSection = Field(default_factory=SnapshotsSection, description="Schemas and snapshots.")

    @model_validator(mode="after")
    def _raw_needs_column(self) -> PipelineSection:
        if (self.format == "raw") != (self.payload_column is not None):
            raise ValueError('format = "raw" and payload_column go together: set both or neither')
        return self

    @property
    def routes(self) -> tuple[RouteTransform, ...]:
        """The `route` transforms, in order."""
        return tuple(each for each in self.transforms if isinstance(each, RouteTransform))

    @property
    def names_streams(self) -> bool:
        """Whether a row can have a stream."""
        routing = self.routing
        targets = [
            *routing.by_table.values(),
            *(t for route in self.routes for each in route.mapping.values() for t in each),
        ]
        named = routing.stream_column or routing.default_stream or any(route.stream for route in self.routes)
        fetched = any(route.mapping_url for route in self.routes)
        return bool(named or fetched or any(target.stream for target in targets))

    @property
    def routed(self) -> bool:
        """Whether each row says where it goes."""
        return bool(self.routes) or self.routing.derives_destinations

    @model_validator(mode="after")
    def _one_way_to_route(self) -> PipelineSection:
        routing = self.routing
        if self.routes and (routing.derives_destinations or routing.default_stream or routing.default_topic):
            raise ValueError(
                "the transform route and the routing keys (columns, by_table, defaults) exclude one another: use one"
            )
        if self.routed and self.topic is not None:
            raise ValueError("topic and routing exclude one another: a routed row brings its topic")
        if not self.routed and routing != RoutingSection():
            raise ValueError(
                "routing has settings, but nothing that says where a row goes: "
                "set stream_column, topic_column or by_table, or add a route to transforms"
            )
        return self


class Config(Section):
    """The whole file."""

    project: ProjectSection = Field(default_factory=ProjectSection, description="The project as a whole.")
    postgres: PostgresSection = Field(default_factory=PostgresSection, description="The PostgreSQL server.")
    nats: NatsSection = Field(default_factory=NatsSection, description="The NATS server.")
    spark: SparkSection = Field(default_factory=SparkSection, description="How Spark runs.")
    control: ControlSection = Field(default_factory=ControlSection, description="The HTTP control plane.")
    gateway: GatewaySection = Field(default_factory=GatewaySection, description="The Kafka gateway.")
    broker: BrokerSection = Field(default_factory=BrokerSection, description="The broker's HTTP server.")
    registry: RegistrySection = Field(default_factory=RegistrySection, description="The schema registry.")
    relay: RelaySection = Field(default_factory=RelaySection, description="The AT Protocol relay.")
    logging: LoggingSection = Field(default_factory=LoggingSection, description="Logs on standard error.")
    sources: dict[Name, SourceSection] = Field(default_factory=dict, description="Where rows come from, by name.")
    destinations: dict[Name, DestinationSection] = Field(default_factory=dict, description="Where rows go, by name.")
    pipelines: dict[Name, PipelineSection] = Field(default_factory=dict, description="What runs, by name.")
