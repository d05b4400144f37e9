"""The tables under `[destinations]`: one class per kind, with what each key means."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText, Section, Size

__all__ = [
    "ConsoleDestinationSection",
    "DestinationSection",
    "DiscardDestinationSection",
    "MemoryDestinationSection",
    "NatsDestinationSection",
]


class NatsDestinationSection(Section):
    """A JetStream stream. Every message is acknowledged and carries an id by which replays are dropped."""

    type: Literal["nats"]
    url: SecretText | None = Field(None, description="Another server than `[nats]`.")
    stream: str = Field(pattern=r"^[A-Za-z0-9_-]{1,255}$", description="Name of the stream; created when missing.")
    subjects: tuple[str, ...] = Field(min_length=1, description='Subjects the stream keeps, such as `["demo.>"]`.')
    storage: Literal["file", "memory"] = Field("file", description="Where the server keeps the stream.")
    replicas: int = Field(1, ge=1, le=5, description="Copies in a NATS cluster.")
    max_age: Duration = Field(0.0, description="Drop messages older than this; 0 keeps them.")
    max_bytes: Size = Field(0, description="The most the stream may hold; 0 means no limit.")
    duplicate_window: Duration = Field(120.0, description="How long the server remembers message ids.")
    window: int = Field(4000, ge=1, le=1_000_000, description="Messages sent and not yet acknowledged, at most.")
    ack_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an acknowledgement.")
    compression: Literal["none", "zstd"] = Field(
        "none", description="`zstd`: each message by itself, with dictionaries learnt from the data."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the stream: then a second writer is fenced off, and a replay is "
        "recognised whatever the outage lasted. On by default for CDC pipelines.",
    )


class MemoryDestinationSection(Section):
    """Keeps the last rows in the process, for tests and for `headgate status`."""

    type: Literal["memory"]
    max_rows: int = Field(10_000, ge=1, description="Older rows are forgotten.")


class ConsoleDestinationSection(Section):
    """Prints every row as one line on standard output."""

    type: Literal["console"]
    max_rows_per_batch: int = Field(1000, ge=1, description="More rows in one batch are counted, not printed.")


class DiscardDestinationSection(Section):
    """Counts rows and drops them, to see what a pipeline does without a destination."""

    type: Literal["discard"]


DestinationSection = Annotated[
    NatsDestinationSection | MemoryDestinationSection | ConsoleDestinationSection | DiscardDestinationSection,
    Field(discriminator="type"),
]
