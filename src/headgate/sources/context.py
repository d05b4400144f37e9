"""What a source is built with besides its own table of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

__all__ = ["DeadLetterLimits", "SourceContext"]


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """How many refused rows the pipeline of a source keeps; at the limit it waits."""

    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The place of a source in its project and in the one pipeline that reads it."""

    name: str  # of its table in the configuration
    project: str
    origin: str  # the first part of every message id, for sources whose server has no identity of its own
    directory: Path  # of the pipeline
    data_dir: Path  # of the project
    dead_letters: DeadLetterLimits
    postgres_url: str = ""  # behind `[postgres]`, embedded or not
    ordering: str = "total"  # what the pipeline keeps in order, and how many tasks share a batch unless that is all
    tasks: int = 1
    serve_on: str = ""  # an address for executors that do not see `directory`; empty if they do
    needs_images: bool = False  # the pipeline reads columns of changed rows
    has_keys: bool = False  # its rows are sent as they are, to a destination where messages have keys

    @property
    def owner(self) -> str:
        """Name of the reader; stable, where `origin` changes with a reset."""
        return f"{self.project}-{self.name}"

    def database(self, own: SecretStr | None) -> str:
        """Return the URL of the source's own server if it names one, otherwise that of `[postgres]`."""
        return own.get_secret_value() if own else self.postgres_url
