"""Debezium's encoder for a source: its options, the database's name, and what the reader has learnt of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from psycopg import conninfo

from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.schemas import BookReader, TableEntry
from headgate.wire.envelope import DebeziumEncoder, Frame, schema_version, unframed
from headgate.wire.pgoutput import Relation
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["encoder_maker", "frame_of"]


def encoder_maker(options: CdcOptions) -> Callable[[TypeCatalog], DebeziumEncoder]:
    """Makes the encoder for a catalog of types."""
    chosen = options.debezium_options
    settings = conninfo.conninfo_to_dict(options.url)
    database = str(settings.get("dbname") or settings.get("user") or "")
    tables, frame = _tables_of(options.spool_dir), frame_of(options)
    return lambda types: DebeziumEncoder(types, chosen, database=database, described=tables.description, frame=frame)


def frame_of(options: CdcOptions) -> Frame:
    """Return what stands before the messages of a source: nothing, unless their schemas are in a registry."""
    if not options.schema_registry:
        return unframed
    # An HTTP client takes a tenth of a second to import, which others need not wait for.
    from headgate.sources.postgres_cdc.registered import RegisteredFrame

    return RegisteredFrame.of(options)


class _Tables:
    """Descriptions from the reader's book, which grows while it is read."""

    def __init__(self, directory: Path) -> None:
        self._reader = BookReader(directory)
        self._entries: dict[int, TableEntry] = {}

    def description(self, relation: Relation) -> Mapping[str, Any] | None:
        """What the catalog said of this shape; None if nobody remembers."""
        self._entries.update(self._reader.changes())
        entry = self._entries.get(relation.relation_id)
        if entry is None:
            return None
        version = schema_version(relation)
        found = [each.description for each in entry.announced] + ([entry.current] if entry.current else [])
        return next((each for each in reversed(found) if each["version"] == version), None)


@cache
def _tables_of(directory: Path) -> _Tables:
    """A worker decodes many ranges of the same spool."""
    return _Tables(directory)
