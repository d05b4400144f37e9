"""The configuration of a `atproto` source."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import Size
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.atproto.options import AtprotoSourceOptions

__all__ = ["AtprotoSourceSection"]


class AtprotoSourceSection(SourceTable):
    """Events of an AT Protocol relay: a row per change of a record, and one per change of an account."""

    can_read_again: ClassVar[bool] = True  # the relay has it all
    fixed_columns: ClassVar[tuple[str, ...]] = (
        "did", "collection", "rkey", "action", "rev", "cid", "record", "seq", "time", "kind",
    )  # fmt: skip

    type: Literal["atproto"]
    url: str = Field("", pattern=r"^(wss?://.+)?$", description="The relay: `wss://relay.example`.")
    path: Path | None = Field(None, description="Or the directory of the event log of a relay of headgate's.")
    start_at: Literal["earliest", "latest"] = option(
        AtprotoSourceOptions, "starting_offsets", description="Where the first start begins."
    )
    max_rows_per_batch: int = option(
        AtprotoSourceOptions, "max_offsets_per_trigger", ge=1, description="The most events one batch may take."
    )
    max_spool_bytes: Size = option(
        AtprotoSourceOptions,
        "max_spool_bytes",
        ge=1 << 26,
        description="When so much waits for delivery, the relay waits.",
    )
    partitions: int = option(
        AtprotoSourceOptions,
        "min_partitions",
        ge=1,
        le=1024,
        description="Above 1, a task for each file of the log; order is per task.",
    )
    fail_on_data_loss: bool = option(
        AtprotoSourceOptions, "fail_on_data_loss", description="Whether events gone before they were read are an error."
    )

    @model_validator(mode="after")
    def _one_way_to_read(self) -> Self:
        if bool(self.url) == bool(self.path):
            raise ValueError("set one of url and path")
        return self
