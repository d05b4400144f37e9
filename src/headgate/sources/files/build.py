"""From the configuration to a `files` source."""

from __future__ import annotations

from pathlib import Path

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.files.section import FilesSourceSection
from headgate.sources.files.source import FileRows, FilesSource

__all__ = ["build"]


def build(section: FilesSourceSection, context: SourceContext) -> FilesSource:
    options = {
        **spark_options(section),
        "path": section.path if "://" in section.path else str(Path(section.path).absolute()),
        "directory": str(context.directory / "files"),
    }
    if section.format == "parquet" and not section.finished_after:
        options["finishedAfterMs"] = "1000"  # a Parquet file that is there is finished: Spark reads it once and whole
    rows = FileRows(section.format, section.row_schema, section.header, section.mode)
    return FilesSource(context.name, rows, options, context.origin)
