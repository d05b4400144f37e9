"""The configuration of a `log` destination."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import SecretText
from headgate.config.kinds import DestinationTable

__all__ = ["LogDestinationSection"]


class LogDestinationSection(DestinationTable):
    """The log in PostgreSQL that the gateway serves to Kafka clients. Works without a running gateway."""

    uses: ClassVar[Literal["postgres"]] = "postgres"

    batches_from: ClassVar[tuple[str, ...]] = ("kafka",)

    type: Literal["log"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    topic: str = Field(
        "{stream}.{topic}", description="Name of a topic whose rows have a stream; without one it is the row's topic."
    )
    cleanup_policy: Literal["delete", "compact"] = Field(
        "delete",
        description="Of topics that are made because a row goes there: `compact` keeps the last message of each key.",
    )
    partitions: int = Field(1, ge=1, le=10_000, description="Of topics that are made because a row goes there.")
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind what lies last in each partition. On by default for CDC pipelines, "
        "and for others not to be had.",
    )
