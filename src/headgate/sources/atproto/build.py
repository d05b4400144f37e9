"""From the configuration to an `atproto` source."""

from __future__ import annotations

from headgate.sources.atproto.section import AtprotoSourceSection
from headgate.sources.atproto.source import AtprotoSource
from headgate.sources.context import SourceContext

__all__ = ["build"]


def build(section: AtprotoSourceSection, context: SourceContext) -> AtprotoSource:
    spool = context.directory / "spool"
    place = {"url": section.url, "spool": spool} if section.path is None else {"path": section.path.absolute()}
    options = {
        **place,
        "startingOffsets": section.start_at,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "maxSpoolBytes": section.max_spool_bytes,
        "minPartitions": section.partitions,
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
    return AtprotoSource(context.name, {key: str(value) for key, value in options.items()}, context.origin)
