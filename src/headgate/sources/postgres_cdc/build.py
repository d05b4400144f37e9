"""From the configuration to a `postgres-cdc` source."""

from __future__ import annotations

import json

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.postgres_cdc.section import PostgresCdcSourceSection
from headgate.sources.postgres_cdc.source import PostgresCdcSource
from headgate.spool.dead_letters import DEAD_LETTERS

__all__ = ["build"]


def build(section: PostgresCdcSourceSection, context: SourceContext) -> PostgresCdcSource:
    options = {
        **spark_options(section),
        **_set_aside(context),
        "url": context.database(section.url),
        "spool": str(context.directory / "spool"),
    }
    if context.ordering != "total":
        options |= {"ordering": context.ordering, "tasks": str(context.tasks)}
    if context.serve_on:
        options["serveOn"] = context.serve_on
    if context.needs_images:
        options["images"] = "true"
    if section.format == "debezium":
        chosen = section.debezium.model_dump(mode="json", exclude_none=True)
        chosen["message_keys"] &= context.has_keys
        options["debezium"] = json.dumps(chosen)
    if section.schema_registry is not None:
        options["schemaRegistry"] = section.schema_registry.get_secret_value()
    return PostgresCdcSource(context.name, options)


def _set_aside(context: SourceContext) -> dict[str, str]:
    """Rows that cannot become events are kept with the other dead letters."""
    return {
        "deadLetters": str(context.directory / DEAD_LETTERS),
        "maxDeadLetters": str(context.dead_letters.max_rows),
        "maxDeadLetterBytes": str(context.dead_letters.max_bytes),
    }
