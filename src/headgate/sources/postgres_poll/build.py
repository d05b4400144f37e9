"""From the configuration to a `postgres-poll` source."""

from __future__ import annotations

from headgate.sources.context import SourceContext
from headgate.sources.postgres_poll.section import PostgresPollSourceSection
from headgate.sources.postgres_poll.source import PostgresPollSource

__all__ = ["build"]


def build(section: PostgresPollSourceSection, context: SourceContext) -> PostgresPollSource:
    options = {
        "url": context.database(section.url),
        "table": section.table,
        "trackingColumn": section.tracking_column,
        "directory": context.directory / "poll",
        "keyColumns": ",".join(section.key_columns),
        "columns": ",".join(section.columns),
        "textColumns": ",".join(section.text_columns),
        "filter": section.filter,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "overlap": round(section.overlap * 1000),
        "overlapValues": section.overlap_values,
        "futureRows": section.future_rows,
        "pollInterval": round(section.poll_interval * 1000),
        "deleteAfterRead": str(section.delete_after_read).lower(),
        "processedColumn": section.processed_column,
    }
    texts = {key: str(value) for key, value in options.items()}
    return PostgresPollSource(context.name, texts, context.origin, section.destructive)
