"""`headgate.toml` as frozen models. What a key means is said here once and shown by `headgate schema`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr, model_validator

__all__ = [
    "Config",
    "ConsoleDestinationSection",
    "ControlSection",
    "DestinationSection",
    "DiscardDestinationSection",
    "DropTransform",
    "FilterTransform",
    "LoggingSection",
    "MemoryDestinationSection",
    "NatsDestinationSection",
    "NatsSection",
    "PipelineSection",
    "PostgresCdcSourceSection",
    "PostgresSection",
    "ProjectSection",
    "RandomSourceSection",
    "RenameTransform",
    "SelectTransform",
    "SourceSection",
    "SparkSection",
    "SqlTransform",
    "TransformSection",
]

EMBEDDED = "embedded"

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _quantity(units: dict[str, float] | dict[str, int], example: str) -> BeforeValidator:
    names = "|".join(sorted(units, key=len, reverse=True))
    pattern = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({names})\s*")

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        match = pattern.fullmatch(value)
        if match is None:
            raise ValueError(f"write a number with a unit, such as {example}; units are {', '.join(units)}")
        return float(match[1]) * units[match[2]]

    return BeforeValidator(parse)


Duration = Annotated[float, _quantity(_UNITS_S, '"500ms" or "30s"'), Field(ge=0)]
"""Seconds; in TOML a number of seconds or text such as `"30s"`."""

Size = Annotated[int, _quantity(_UNITS_BYTES, '"64MB" or "1GiB"'), Field(ge=0)]
"""Bytes; in TOML a number of bytes or text such as `"64MB"`."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]

SecretText = Annotated[SecretStr, PlainSerializer(lambda secret: "********", return_type=str)]


class Section(BaseModel):
    """A table of the file: frozen, strict about unknown keys, and able to read secrets from files."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, data: Any) -> Any:
        """`password_file = "/run/secrets/pg"` fills `password`, as container platforms hand secrets out."""
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        for key in [k for k in data if k.endswith("_file") and k in cls.model_fields]:
            target = key.removesuffix("_file")
            if target not in cls.model_fields:
                continue
            if target in data:
                raise ValueError(f"set {target} or {key}, not both")
            filled[target] = _read_secret(data[key])
        return filled


def _read_secret(path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the secret file {path}: {error}") from None


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

    master: str = Field("local[4]", description="`local[N]`, `spark://host:7077`, `yarn`, `k8s://...`.")
    driver_memory: str = Field("1g", pattern=r"^\d+[kmgt]$", description="Heap of the driver's Java process.")
    ui: bool = Field(False, description="Serve Spark's own web page.")
    checkpoint_dir: str | None = Field(
        None, description="Where queries keep their offsets; on a cluster a path that the driver's restarts can see."
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
        loopback = self.host in ("localhost", "::1") or self.host.startswith("127.")
        if not loopback and self.token is None:
            raise ValueError(f"host {self.host} is not loopback, so a token is required: set token or token_file")
        return self


class LoggingSection(Section):
    """Logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least severe line shown.")
    format: Literal["logfmt", "json"] = Field("logfmt", description="One line an event, for people or for machines.")
    metrics_interval: Duration = Field(15.0, description="A METRICS line at this interval; 0 turns it off.")


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
    subject: str = Field(
        "cdc.{schema}.{table}.{op}", description="The topic of an event; names are escaped where they need to be."
    )
    max_rows_per_batch: int = Field(250_000, ge=1, description="The most changes one batch may take.")
    max_bytes_per_batch: Size = Field(64 << 20, gt=0, description="The most WAL bytes one batch may take.")
    max_spool_bytes: Size = Field(1 << 30, gt=0, description="When so much waits for delivery, the rest stays in WAL.")
    failover: bool = Field(False, description="Make the slot survive a failover (PostgreSQL 17 and newer).")
    images: bool = Field(False, description="Also the columns `_key`, `_before` and `_after`, for transforms.")


SourceSection = Annotated[RandomSourceSection | PostgresCdcSourceSection, Field(discriminator="type")]


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


DestinationSection = Annotated[
    NatsDestinationSection | MemoryDestinationSection | ConsoleDestinationSection | DiscardDestinationSection,
    Field(discriminator="type"),
]


class FilterTransform(Section):
    """Keep the rows for which a Spark SQL condition holds."""

    type: Literal["filter"]
    where: str = Field(min_length=1, description="Such as `\"amount > 100 and kind = 'order'\"`.")


class SelectTransform(Section):
    """Keep or compute columns."""

    type: Literal["select"]
    columns: tuple[str, ...] = Field(min_length=1, description='Such as `["id", "amount * 1.2 as gross"]`.')


class RenameTransform(Section):
    """Rename columns."""

    type: Literal["rename"]
    columns: dict[str, str] = Field(min_length=1, description='Such as `{ note = "comment" }`.')


class DropTransform(Section):
    """Leave columns out."""

    type: Literal["drop"]
    columns: tuple[str, ...] = Field(min_length=1, description='Such as `["note"]`.')


class SqlTransform(Section):
    """A Spark SQL query over the table `batch`. It must keep the column `_position`, as `select *` does."""

    type: Literal["sql"]
    query: str = Field(min_length=1, description='Such as `"select *, upper(kind) as label from batch"`.')


TransformSection = Annotated[
    FilterTransform | SelectTransform | RenameTransform | DropTransform | SqlTransform, Field(discriminator="type")
]


class BootstrapSection(Section):
    """Schemas and snapshots for consumers. Pipelines from a CDC source to a NATS destination have them."""

    enabled: bool = Field(True, description="Whether consumers may ask for snapshots.")
    stream: str = Field("INIT", pattern=r"^[A-Za-z0-9_-]{1,255}$", description="The stream of snapshots.")
    bucket: str = Field("schemas", pattern=r"^[A-Za-z0-9_-]{1,200}$", description="The bucket of schemas.")
    max_age: Duration = Field(7 * 86400.0, description="Drop snapshots older than this.")
    max_bytes: Size = Field(0, description="The most the stream of snapshots may hold; 0 means no limit.")
    chunk_rows: int = Field(10_000, ge=1, le=1_000_000, description="Rows in one message, as far as it has room.")
    method: Literal["export", "filter", "watermark"] = Field(
        "export",
        description="`export`: by a temporary slot; `filter`: without one; `watermark`: in short transactions.",
    )
    parallelism: int = Field(2, ge=1, le=64, description="Tasks that copy a table side by side.")
    timeout: Duration = Field(60.0, gt=0, description="How long to wait for running transactions.")


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
    trigger_interval: Duration = Field(0.0, description="Least time between two batches; 0 means at once.")
    enabled: bool = Field(True, description="Whether `headgate run` starts it.")
    bootstrap: BootstrapSection = Field(default_factory=BootstrapSection, description="Schemas and snapshots.")

    @model_validator(mode="after")
    def _raw_needs_column(self) -> PipelineSection:
        if (self.format == "raw") != (self.payload_column is not None):
            raise ValueError('format = "raw" and payload_column go together: set both or neither')
        return self


class Config(Section):
    """The whole file."""

    project: ProjectSection = Field(default_factory=ProjectSection)
    postgres: PostgresSection = Field(default_factory=PostgresSection)
    nats: NatsSection = Field(default_factory=NatsSection)
    spark: SparkSection = Field(default_factory=SparkSection)
    control: ControlSection = Field(default_factory=ControlSection)
    logging: LoggingSection = Field(default_factory=LoggingSection)
    sources: dict[Name, SourceSection] = Field(default_factory=dict)
    destinations: dict[Name, DestinationSection] = Field(default_factory=dict)
    pipelines: dict[Name, PipelineSection] = Field(default_factory=dict)
