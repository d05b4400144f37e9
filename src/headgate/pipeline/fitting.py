"""Can a pipeline run as its `trigger` and `ordering` ask? One answer for `validate`, `check` and `run`."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.config import Config
from headgate.config.models import PipelineSection
from headgate.model import ConfigError
from headgate.pipeline.spec import PipelineSpec

__all__ = ["misfits"]


def misfits(spec: PipelineSpec, section: PipelineSection, config: Config) -> Iterator[ConfigError]:
    """Yield what the section asks for and its source, transforms or destinations cannot do. Asks no server."""
    if section.trigger == "realtime" and (reason := _against_following(spec, section, config)):
        yield ConfigError(
            f'trigger = "realtime" is not possible here: {reason}',
            where=f"{spec.where}.trigger",
            remedy='take the line out, or set trigger = "batch"',
        )
    if section.ordering != "total" and (reason := _against_sharing(spec)):
        yield ConfigError(
            f'ordering = "{section.ordering}" is not possible here: {reason}',
            where=f"{spec.where}.ordering",
            remedy='take the line out, or use destinations that can: see "Scaling out" in docs/clusters.md',
        )


def _against_following(spec: PipelineSpec, section: PipelineSection, config: Config) -> str | None:
    if not config.spark.master.startswith("local"):
        return f'spark.master is {config.spark.master}, and tasks follow a reader on their own machine ("local[N]")'
    if section.trigger_interval:
        return "a trigger_interval asks for batches"
    if section.ordering != "total":
        return f'with ordering = "{section.ordering}" several tasks share a batch'
    if not spec.can_follow:
        return "only untransformed or routed rows of a postgres-cdc source can be followed, to no `table` or `memory`"
    return None


def _against_sharing(spec: PipelineSpec) -> str | None:
    if spec.source.format != "pgcdc" or spec.shortcut is None:
        return "only untransformed or routed rows of a postgres-cdc source can be shared out"
    others = [each.name for each in spec.destinations if not each.takes_shares]
    return f"{', '.join(others)} can tell a replay only by the order of all rows" if others else None
