"""The tables under `[sources]`: one class per kind, with what each key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headgate.config.base import SecretText, Section, Size

__all__ = ["PostgresCdcSourceSection", "RandomSourceSection", "SourceSection"]


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
