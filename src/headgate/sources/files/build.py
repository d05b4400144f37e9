"""From the configuration to a `files` source."""

from __future__ import annotations

from pathlib import Path

from headgate.sources.context import SourceContext
from headgate.sources.files.section import FilesSourceSection
from headgate.sources.files.source import FileRows, FilesSource

__all__ = ["build"]


def build(section: FilesSourceSection, context: SourceContext) -> FilesSource:
    # A finished Parquet file is one that is there: Spark reads it once and whole.
    finished_after = section.finished_after or (1 if section.format == "parquet" else 0)
    options = {
        "path": section.path if "://" in section.path else Path(section.path).absolute(),
        "directory": context.directory / "files",
        "startAt": section.start_at,
        "maxBytesPerTrigger": section.max_bytes_per_batch,
        "maxFilesPerTrigger": section.max_files_per_batch,
        "maxLineBytes": section.max_line_bytes,
        "minPartitions": section.partitions,
        "pollInterval": round(section.poll_interval * 1000),
        "finishedAfter": round(finished_after * 1000),
        "deleteAfterRead": str(section.delete_after_read).lower(),
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
    rows = FileRows(section.format, section.row_schema, section.header, section.mode)
    return FilesSource(context.name, rows, {key: str(value) for key, value in options.items()}, context.origin)
