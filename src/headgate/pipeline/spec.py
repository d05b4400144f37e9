"""A pipeline as it will run: the configuration with every name resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headgate.config.models import TransformSection
from headgate.destinations.base import Destination

__all__ = ["PipelineSpec", "SourceSpec"]

Offset = dict[str, Any]


def _no_lag(end: Offset, latest: Offset) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """How Spark opens a source."""

    name: str
    format: str
    origin: str  # the first part of every message id
    options: dict[str, str] = field(default_factory=dict)
    lag_rows: Callable[[Offset, Offset], int | None] = _no_lag

    @property
    def identity(self) -> str:
        """What must stay the same for saved offsets to mean the same rows."""
        return f"{self.format}:{self.origin}"


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Everything a supervisor needs to run one pipeline."""

    name: str
    source: SourceSpec
    destinations: tuple[Destination, ...]
    topic: str
    state_path: Path
    checkpoint: str
    transforms: tuple[TransformSection, ...] = ()
    payload_format: Literal["json", "raw"] = "json"
    payload_column: str | None = None
    trigger_interval_s: float = 0.0
    until_caught_up: bool = False  # stop when what was there at the start is delivered (Spark's AvailableNow)

    @property
    def where(self) -> str:
        return f"pipelines.{self.name}"
