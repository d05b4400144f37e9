"""The configuration of a `random` source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.random.options import RandomOptions

__all__ = ["RandomSourceSection"]


class RandomSourceSection(SourceTable):
    """Made-up orders: the same seed gives the same rows, whatever crashes in between."""

    fixed_columns: ClassVar[tuple[str, ...]] = ("id", "kind", "customer", "amount", "note")

    type: Literal["random"]
    rows_per_second: int = option(
        RandomOptions, "rows_per_second", ge=0, description="Rate of arrival; 0 means all at once."
    )
    rows: int = option(RandomOptions, "num_rows", ge=0, description="How many rows in all; 0 means without end.")
    max_rows_per_batch: int = option(
        RandomOptions, "max_offsets_per_trigger", ge=1, description="The most rows one batch may take."
    )
    partitions: int = option(
        RandomOptions,
        "min_partitions",
        ge=1,
        le=1024,
        description="Tasks that read one batch. Above 1, order is per task.",
    )
    payload_bytes: int = option(
        RandomOptions, "payload_bytes", ge=0, le=1_000_000, description="Length of the column `note`."
    )
    customers: int = option(
        RandomOptions, "customers", ge=1, description="How many distinct values the column `customer` has."
    )
    seed: int = option(RandomOptions, "seed", ge=0, le=2**63 - 1, description="Chooses the rows.")

    @model_validator(mode="after")
    def _finite(self) -> RandomSourceSection:
        if self.rows_per_second == 0 and self.rows == 0:
            raise ValueError("rows_per_second = 0 (all at once) needs an end: set rows")
        return self
