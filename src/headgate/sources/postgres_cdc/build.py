"""From the configuration to a `postgres-cdc` source."""

from __future__ import annotations

from headgate.sources.context import SourceContext
from headgate.sources.postgres_cdc.section import PostgresCdcSourceSection
from headgate.sources.postgres_cdc.source import PostgresCdcSource
from headgate.spool.dead_letters import DEAD_LETTERS

__all__ = ["build"]


def build(section: PostgresCdcSourceSection, context: SourceContext) -> PostgresCdcSource:
    options = {
        "url": context.database(section.url),
        "slot": section.slot,
        "publication": section.publication,
        "spool": context.directory / "spool",
        "format": section.format,
        "subject": section.subject,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "maxBytesPerTrigger": section.max_bytes_per_batch,
        "maxSpoolBytes": section.max_spool_bytes,
        "createPublicationFor": ",".join(section.tables),
        "failover": str(section.failover).lower(),
        "images": str(section.images or context.needs_images).lower(),
        **_set_aside(context),
    }
    if section.format == "debezium":
        options["debezium"] = section.debezium.model_dump_json(exclude_none=True)
    return PostgresCdcSource(context.name, {key: str(value) for key, value in options.items()})


def _set_aside(context: SourceContext) -> dict[str, object]:
    """Rows that cannot become events are kept with the other dead letters."""
    return {
        "deadLetters": context.directory / DEAD_LETTERS,
        "maxDeadLetters": context.dead_letters.max_rows,
        "maxDeadLetterBytes": context.dead_letters.max_bytes,
    }
