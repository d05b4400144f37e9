"""From the configuration to the sources that are asked again and again: tables and files."""

from __future__ import annotations

from pathlib import Path

from headgate.config.sources import FilesSourceSection, PostgresPollSourceSection
from headgate.sources.files.source import FileRows, FilesSource
from headgate.sources.postgres_poll.source import PostgresPollSource

__all__ = ["files_source", "poll_source"]


def poll_source(
    name: str, section: PostgresPollSourceSection, *, url: str, origin: str, directory: Path
) -> PostgresPollSource:
    options = {
        "url": url,
        "table": section.table,
        "trackingColumn": section.tracking_column,
        "directory": directory,
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
    return PostgresPollSource(name, texts, origin, section.destructive)


def files_source(name: str, section: FilesSourceSection, *, origin: str, directory: Path) -> FilesSource:
    # A finished Parquet file is one that is there: Spark reads it once and whole.
    finished_after = section.finished_after or (1 if section.format == "parquet" else 0)
    options = {
        "path": section.path if "://" in section.path else Path(section.path).absolute(),
        "directory": directory,
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
    return FilesSource(name, rows, {key: str(value) for key, value in options.items()}, origin)
