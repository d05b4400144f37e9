"""The configuration of a `postgres-cdc` source."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import SecretText, Section, Size
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.postgres_cdc.options import CdcOptions, why_not_registrable

__all__ = ["DebeziumSection", "PostgresCdcSourceSection"]


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
    message_keys: bool = Field(
        True, description="Messages have the primary key as their key, at destinations that have keys: `kafka`, `log`."
    )
    unwrap: bool = Field(
        False, description="A message is the row alone, and has no value for a delete: ExtractNewRecordState."
    )
    topic_heartbeat_prefix: str = Field("__debezium-heartbeat", description="Its topic is `{this}.{topic_prefix}`.")


class PostgresCdcSourceSection(SourceTable):
    """Every committed change of the tables of a publication, in commit order."""

    uses: ClassVar[Literal["postgres"]] = "postgres"
    has_envelope: ClassVar[bool] = True
    can_read_again: ClassVar[bool] = True  # the slot has it all

    type: Literal["postgres-cdc"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    slot: str = option(
        CdcOptions, "slot", pattern=r"^[a-z0-9_]{1,63}$", description="The replication slot; created when missing."
    )
    publication: str = option(
        CdcOptions, "publication", min_length=1, description="The publication; several separated by commas."
    )
    tables: tuple[str, ...] = option(
        CdcOptions,
        "create_publication_for",
        is_list=True,
        description='Create a missing publication for these: `["public.users"]`, or `["*"]` for all tables.',
    )
    format: Literal["msgpack", "json", "debezium"] = option(
        CdcOptions, "format", description="The envelope of an event."
    )
    debezium: DebeziumSection = Field(
        default_factory=DebeziumSection, description='Of the format `debezium`: `{ topic_prefix = "shop" }`.'
    )
    schema_registry: SecretText | None = Field(
        None, description="Register the schemas of messages there: `http://127.0.0.1:8081`. See docs/registry.md."
    )
    schema_registry_file: Path | None = Field(None, description="Read `schema_registry` from this file.")
    subject: str = option(
        CdcOptions, "subject", description="The topic of an event; names are escaped where they need to be."
    )
    max_rows_per_batch: int = option(
        CdcOptions, "max_offsets_per_trigger", ge=1, description="The most changes one batch may take."
    )
    max_bytes_per_batch: Size = option(
        CdcOptions, "max_bytes_per_trigger", gt=0, description="The most WAL bytes one batch may take."
    )
    max_spool_bytes: Size = option(
        CdcOptions, "max_spool_bytes", gt=0, description="When so much waits for delivery, the rest stays in WAL."
    )
    failover: bool = option(
        CdcOptions, "failover", description="Make the slot survive a failover (PostgreSQL 17 and newer)."
    )
    images: bool = option(
        CdcOptions, "images", description="Also the columns `_key`, `_before` and `_after`, for transforms."
    )

    @model_validator(mode="after")
    def _is_registrable(self) -> Self:
        if self.schema_registry is None:
            return self
        schemas_enable = self.debezium.schemas_enable
        if reason := why_not_registrable(self.format, self.subject, schemas_enable=schemas_enable):
            raise ValueError(f"schema_registry: a registry {reason[0]}; {reason[1]}")
        return self
