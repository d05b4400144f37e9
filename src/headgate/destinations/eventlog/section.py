"""The configuration of a `eventlog` destination."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from headgate.config.base import Duration, SecretText, Size
from headgate.config.kinds import DestinationTable
from headgate.runtime.access import is_loopback

__all__ = ["EventLogDestinationSection"]


class EventLogDestinationSection(DestinationTable):
    """A log of events in files of this machine, served by `headgate eventlog serve`."""

    has_partitions: ClassVar[bool] = False

    type: Literal["eventlog"]
    path: Path | None = Field(None, description="Its directory, relative to `data_dir`.")
    topic: str = Field(
        "{stream}.{topic}", description="Topic of an event whose row has a stream; without one it is the row's topic."
    )
    segment_events: int = Field(10_000, ge=1, le=10_000_000, description="Events in one file.")
    segment_bytes: Size = Field(256 << 20, ge=1024, description="Where a file ends before that.")
    max_age: Duration = Field(72 * 3600.0, description="Remove files older than this; 0 keeps them.")
    max_bytes: Size = Field(0, description="The most the files may hold; 0 means no limit.")
    exclusive: bool | None = Field(
        None,
        description="Whether a replay begins behind the last event. On by default for CDC pipelines, and for others "
        "not to be had.",
    )
    host: str = Field("127.0.0.1", description="Where to serve it. Other than loopback, `token` is required.")
    port: int = Field(8740, ge=0, le=65535, description="Port to serve it on; 0 picks a free one.")
    token: SecretText | None = Field(None, min_length=1, description="Bearer token that every request must carry.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    max_connections: int = Field(1000, ge=1, description="Listeners at a time; further ones are refused.")

    @model_validator(mode="after")
    def _public_needs_token(self) -> EventLogDestinationSection:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(f"host {self.host} is not loopback, so a token is required: set token or token_file")
        return self

    def directory(self, name: str, data_dir: Path) -> Path:
        """Return the directory of the log of the destination `name`."""
        return data_dir / (self.path or Path("eventlogs") / name)

    @property
    def listens_on(self) -> tuple[str, int]:
        return self.host, self.port
