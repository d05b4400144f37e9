"""The configuration of a `atproto` source."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import Section, Size

__all__ = ["AtprotoSourceSection"]


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
