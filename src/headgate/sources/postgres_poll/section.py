"""The configuration of a `postgres-poll` source."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from headgate.config.base import Duration, SecretText
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.postgres_poll.options import PollOptions

__all__ = ["PostgresPollSourceSection"]


class PostgresPollSourceSection(SourceTable):
    """The rows of a table in the order of a column that grows; delivered ones may be deleted or marked."""

    uses: ClassVar[Literal["postgres"]] = "postgres"

    type: Literal["postgres-poll"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    table: str = option(
        PollOptions, "table", min_length=1, description='`orders`, `shop.orders`, or `shop."odd.name"`.'
    )
    tracking_column: str = option(
        PollOptions, "tracking_column", min_length=1, description="Grows with every row that is new or changed."
    )
    key_columns: tuple[str, ...] = option(
        PollOptions, "key_columns", is_list=True, description="What identifies a row; the primary key unless given."
    )
    columns: tuple[str, ...] = option(
        PollOptions, "columns", is_list=True, description="The columns to read; all unless given."
    )
    text_columns: tuple[str, ...] = option(
        PollOptions, "text_columns", is_list=True, description="Columns to read as PostgreSQL's own text."
    )
    filter: str = option(PollOptions, "filter", description="SQL: only rows for which it is true.")
    max_rows_per_batch: int = option(
        PollOptions, "max_offsets_per_trigger", ge=1, description="The most rows one batch may take."
    )
    partitions: int = option(
        PollOptions,
        "min_partitions",
        ge=1,
        le=1024,
        description="Tasks that read one batch. Above 1, order is per task.",
    )
    overlap: Duration = option(
        PollOptions,
        "overlap_ms",
        in_milliseconds=True,
        description="How far behind the last row late ones are looked for; of a tracking column of time.",
    )
    overlap_values: int = option(
        PollOptions, "overlap_values", ge=0, description="The same of a tracking column of whole numbers."
    )
    future_rows: Literal["wait", "read"] = option(
        PollOptions,
        "future_rows",
        description="Rows dated after the server's clock wait for their time, or are read at once.",
    )
    poll_interval: Duration = option(
        PollOptions,
        "poll_interval_ms",
        in_milliseconds=True,
        description="How often a table that had nothing new is asked.",
    )
    delete_after_read: bool = option(
        PollOptions, "delete_after_read", description="Delete rows once they are delivered and recorded."
    )
    processed_column: str = option(PollOptions, "processed_column", description="A boolean column that is set instead.")
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
