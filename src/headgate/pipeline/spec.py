"""A pipeline as it will run: the configuration with every name resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headgate.config.models import TransformSection
from headgate.destinations.base import Destination

__all__ = ["PipelineSpec", "Shortcut", "SourceSpec"]

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """For rows that nothing looks at on their way: the sender makes them itself, and they never enter the JVM.

    With these options the source's rows only say where the real ones are; `rows` makes delivery columns of them.
    """

    options: dict[str, str]
    rows: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """How Spark opens a source, and what it wants to hear about delivery."""

    name: str
    format: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    # The first part of every message id; it may take a look at the server to say.
    origin: Callable[[], str] = lambda: ""
    lag_rows: Callable[[Offset, Offset], int | None] = lambda end, latest: None
    # Everything up to this offset is delivered and recorded.
    delivered: Callable[[Offset], None] = lambda end: None
    # What the source says of itself, for the status.
    describe: Callable[[], dict[str, Any]] = dict
    has_envelope: bool = False  # its rows carry their topic and payload
    shortcut: Shortcut | None = None


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Everything a supervisor needs to run one pipeline."""

    name: str
    source: SourceSpec
    destinations: tuple[Destination, ...]
    state_path: Path
    checkpoint: str
    topic: str | None = None
    transforms: tuple[TransformSection, ...] = ()
    payload_format: Literal["json", "raw", "envelope"] = "json"
    payload_column: str | None = None
    trigger_interval_s: float = 0.0
    # Whatever must be true elsewhere before a batch's rows arrive, such as published schemas.
    before_batch: Callable[[], None] = lambda: None
    until_caught_up: bool = False  # stop when what was there at the start is delivered (Spark's AvailableNow)

    @property
    def shortcut(self) -> Shortcut | None:
        """The source's, if this pipeline sends its rows as they are."""
        untouched = not self.transforms and self.topic is None and self.payload_format == "envelope"
        return self.source.shortcut if untouched else None

    @property
    def where(self) -> str:
        return f"pipelines.{self.name}"
