"""A pipeline as it will run: the configuration with every name resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate.config.routing import RouteTransform
from headgate.config.transforms import TransformSection
from headgate.destinations.base import Destination, LocalDestination
from headgate.model.position import renewed_origin
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.sources.base import Follow, MakeRows, Shortcut, Source
from headgate.spool.dead_letters import DeadLetters

__all__ = ["PipelineSpec"]


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Everything a supervisor needs to run one pipeline."""

    name: str
    source: Source
    destinations: tuple[Destination, ...]
    state_path: Path
    checkpoint: str
    topic: str | None = None
    transforms: tuple[TransformSection, ...] = ()
    payload_format: Literal["json", "raw", "envelope"] = "json"
    payload_column: str | None = None
    trigger_interval_s: float = 0.0
    realtime: bool = False  # follow the source where that can be done
    # Whatever must be true elsewhere before a batch's rows arrive, such as published schemas.
    before_batch: Callable[[], None] = lambda: None
    routing: RoutingSettings | None = None  # each row says where it goes
    dead_letters: DeadLetters | None = None
    failure_threshold: int = 16  # failures in a row that make the status `degraded`
    stop_grace_s: float = 30.0
    resets: int = 0  # how often the pipeline was begun anew
    renews_origin: bool = False  # the source itself knows nothing of resets
    until_caught_up: bool = False  # stop when what was there at the start is delivered (Spark's AvailableNow)

    def origin(self) -> str:
        """The first part of every message id; it may ask the source's server."""
        return renewed_origin(self.source.origin(), self.resets if self.renews_origin else 0)

    @property
    def first_batch(self) -> int:
        """What destinations know a batch by is this and Spark's number: the latter begins anew after a reset."""
        return self.resets << 40

    @property
    def shortcut(self) -> Shortcut | None:
        """The source's, if this pipeline sends its rows as they are; a route only looks at them."""
        untouched = all(isinstance(each, RouteTransform) for each in self.transforms)
        as_they_are = untouched and self.topic is None and self.payload_format == "envelope"
        return self.source.shortcut if as_they_are else None

    @property
    def follows(self) -> bool:
        """Whether a batch follows its source, so that rows need not wait for the next one."""
        return self.realtime and self.can_follow and not self.until_caught_up

    @property
    def can_follow(self) -> bool:
        """Whether the source can be followed, and no destination needs to know where a batch ends."""
        can = self.shortcut is not None and self.shortcut.follow is not None
        return can and not any(each.by_batch or isinstance(each, LocalDestination) for each in self.destinations)

    def shortcut_follow(self) -> Follow:
        """What makes the rows that a shortcut locates, and those behind them."""
        assert self.shortcut is not None
        assert self.shortcut.follow is not None
        return self.shortcut.follow(self.routing.paths.picks() if self.routing else ())

    def shortcut_rows(self) -> MakeRows | None:
        """What makes the rows that a shortcut only locates."""
        return self.shortcut.rows(self.routing.paths.picks() if self.routing else ()) if self.shortcut else None

    @property
    def where(self) -> str:
        return f"pipelines.{self.name}"
