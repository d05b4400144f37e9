"""The configuration of a `nats` destination."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText, Size
from headgate.config.kinds import DestinationTable
from headgate.config.options import option
from headgate.destinations.nats.options import NatsOptions

__all__ = ["NatsDestinationSection"]


class NatsDestinationSection(DestinationTable):
    """A JetStream stream. Every message is acknowledged and carries an id by which replays are dropped."""

    uses: ClassVar[Literal["nats"]] = "nats"

    type: Literal["nats"]
    url: SecretText | None = Field(None, description="Another server than `[nats]`.")
    stream: str = Field(pattern=r"^[A-Za-z0-9_-]{1,255}$", description="Name of the stream; created when missing.")
    subjects: tuple[str, ...] = Field(min_length=1, description='Subjects the stream keeps, such as `["demo.>"]`.')
    storage: Literal["file", "memory"] = option(
        NatsOptions, "storage", description="Where the server keeps the stream."
    )
    replicas: int = option(NatsOptions, "replicas", ge=1, le=5, description="Copies in a NATS cluster.")
    max_age: Duration | None = option(
        NatsOptions,
        "max_age_s",
        description="Drop messages older than this; 0 keeps them. Left out: as the stream is; a new one keeps them.",
    )
    max_bytes: Size | None = option(
        NatsOptions,
        "max_bytes",
        description="The most the stream may hold; 0 means no limit. Left out: as the stream is, a new one has none.",
    )
    discard: Literal["new", "old"] | None = option(
        NatsOptions,
        "discard",
        description="At `max_bytes`: `new` refuses messages, and the pipeline waits; `old` drops the oldest. Left out: "
        "`new`, and a stream with limits that drops old messages is refused.",
    )
    duplicate_window: Duration | None = option(
        NatsOptions,
        "duplicate_window_s",
        ge=0.1,
        description="How long the server remembers message ids. Left out: two minutes at least.",
    )
    window: int = option(
        NatsOptions, "window", ge=1, le=1_000_000, description="Messages sent and not yet acknowledged, at most."
    )
    ack_timeout: Duration = option(
        NatsOptions, "ack_timeout_s", gt=0, description="How long to wait for an acknowledgement."
    )
    compression: Literal["none", "zstd"] = Field(
        "none", description="`zstd`: each message by itself, with dictionaries learnt from the data."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the stream: then a second writer is fenced off, and a replay is "
        "recognised whatever the outage lasted. On by default for CDC pipelines.",
    )
