"""The configuration of a `files` source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headgate.config.base import Duration, Size
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.files.options import FileLinesOptions

__all__ = ["FilesSourceSection"]


class FilesSourceSection(SourceTable):
    """Lines of files that grow, rotate, come and go; or Parquet files as they appear."""

    type: Literal["files"]
    path: str = Field(min_length=1, description="A directory, a pattern such as `/var/log/*.log`, or a file.")
    format: Literal["jsonl", "csv", "parquet", "text"] = Field(description="What the files hold.")
    row_schema: str = Field("", description='The columns: `"id bigint, name string"`. Text needs none.')
    header: bool = Field(False, description="CSV: the first line of a file names the columns, and is no row.")
    mode: Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"] = Field(
        "PERMISSIVE", description="A line that does not parse: kept in `_corrupt_record`, left out, or an error."
    )
    start_at: Literal["beginning", "end"] = option(
        FileLinesOptions, "start_at", description="Of files that are there at the first start."
    )
    max_bytes_per_batch: Size = option(
        FileLinesOptions, "max_bytes_per_trigger", gt=0, description="The most bytes one batch may take."
    )
    max_files_per_batch: int = option(
        FileLinesOptions, "max_files_per_trigger", ge=1, description="The most files one batch may take from."
    )
    max_line_bytes: Size = option(FileLinesOptions, "max_line_bytes", gt=0, description="A longer line is an error.")
    partitions: int = option(
        FileLinesOptions,
        "min_partitions",
        ge=1,
        le=1024,
        description="Tasks that read one batch. Above 1, order is per task.",
    )
    poll_interval: Duration = option(
        FileLinesOptions,
        "poll_interval_ms",
        in_milliseconds=True,
        description="How often files that had nothing new are looked at.",
    )
    finished_after: Duration = option(
        FileLinesOptions,
        "finished_after_ms",
        in_milliseconds=True,
        description="A file that did not change for so long is finished; 0: never.",
    )
    delete_after_read: bool = option(
        FileLinesOptions, "delete_after_read", description="Remove finished files once they are delivered and recorded."
    )
    fail_on_data_loss: bool = option(
        FileLinesOptions,
        "fail_on_data_loss",
        description="Whether lines that are gone before they were read are an error.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> FilesSourceSection:
        if not self.row_schema and (self.format == "jsonl" or (self.format == "csv" and not self.header)):
            raise ValueError(f'format = "{self.format}" needs row_schema, such as "id bigint, name string"')
        if self.header and self.format != "csv":
            raise ValueError('header = true is for format = "csv"')
        if self.delete_after_read and not self.finished_after and self.format != "parquet":
            raise ValueError("delete_after_read needs finished_after, to know when nothing more is written to a file")
        return self
