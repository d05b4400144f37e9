"""The configuration of a `broker` destination."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import SecretText
from headgate.config.kinds import DestinationTable

__all__ = ["BrokerDestinationSection"]


class BrokerDestinationSection(DestinationTable):
    """Events of the broker in PostgreSQL, written by COPY."""

    uses: ClassVar[Literal["postgres"]] = "postgres"
    has_partitions: ClassVar[bool] = False

    type: Literal["broker"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    broker_schema: str = Field("headgate", pattern=r"^[a-z_][a-z0-9_]{0,39}$", description="The broker's schema.")
    topic: str = Field(
        "{stream}.{topic}", description="Topic of an event whose row has a stream; without one it is the row's topic."
    )
    payload: Literal["json", "text"] = Field(
        "json", description="`json`: payloads are JSON; `text`: any text, which becomes a JSON string."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind the last event. On by default for CDC pipelines, and for others "
        "not to be had.",
    )
