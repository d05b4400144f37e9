"""The configuration of a `log` source."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import SecretText
from headgate.sources.topics import TopicsSection

__all__ = ["LogSourceSection"]


class LogSourceSection(TopicsSection):
    """Messages of the log in PostgreSQL, which Kafka clients write through the gateway."""

    uses: ClassVar[Literal["postgres"]] = "postgres"

    type: Literal["log"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
