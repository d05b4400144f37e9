"""From the configuration to a `random` source."""

from __future__ import annotations

from headgate.sources.context import SourceContext
from headgate.sources.random.section import RandomSourceSection
from headgate.sources.random.source import RandomSource

__all__ = ["build"]


def build(section: RandomSourceSection, context: SourceContext) -> RandomSource:
    options = {
        "rowsPerSecond": section.rows_per_second,
        "numRows": section.rows,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "payloadBytes": section.payload_bytes,
        "customers": section.customers,
        "seed": section.seed,
    }
    return RandomSource(context.name, {key: str(value) for key, value in options.items()}, context.origin)
