"""The configuration of a `table` destination."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import SecretText
from headgate.config.kinds import DestinationTable

__all__ = ["TableDestinationSection"]


class TableDestinationSection(DestinationTable):
    """Parquet files, one directory per stream and topic. A batch is visible as a whole, and exactly once."""

    has_partitions: ClassVar[bool] = False

    type: Literal["table"]
    path: SecretText | None = Field(
        None, description="A directory, relative to `data_dir`, or a URL such as `s3://bucket/path`."
    )
    compression: Literal["none", "snappy", "lz4", "zstd"] = Field("zstd", description="Of the files' columns.")
