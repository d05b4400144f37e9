"""The configuration of a `log` source."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import SecretText
from headgate.config.options import option
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.topics import TopicsSection

__all__ = ["LogSourceSection"]


class LogSourceSection(TopicsSection):
    """Messages of the log in PostgreSQL, which Kafka clients write through the gateway."""

    uses: ClassVar[Literal["postgres"]] = "postgres"

    type: Literal["log"]
    unit: Literal["messages", "batches"] = option(
        LogSourceOptions,
        "unit",
        description="What a row is: a message, or a whole batch of them as it is stored, for a mirror.",
    )
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")

    @property
    def has_batches(self) -> bool:
        return self.unit == "batches"

    @model_validator(mode="after")
    def _batches_in_order(self) -> Self:
        if self.has_batches and self.partitions:
            raise ValueError('with unit = "batches" each partition is read by one task: leave partitions out')
        return self
