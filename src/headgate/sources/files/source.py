"""The `files` source of a pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from headgate.model import ConfigError
from headgate.sources.base import DESTRUCTIVE_POLLING, POLLING, Lag, Mode, Offset
from headgate.sources.files.index import Index, Point
from headgate.sources.files.options import FileLinesOptions
from headgate.sources.files.parsing import Format, ParseMode, parquet_rows, parse_lines
from headgate.sources.files.planner import bytes_left, remove_finished
from headgate.sources.files.scan import scan, unreadable
from headgate.sources.polled import PolledSource

__all__ = ["FileRows", "FilesSource"]

_MOST_CHECKED = 100


@dataclass(frozen=True, slots=True)
class FileRows:
    """What the files hold, and what becomes of a line that does not parse."""

    format: Format
    schema: str = ""  # Spark's DDL; of Parquet, and of CSV with a header, found in the files if there are any
    header: bool = False  # CSV: the first line names the columns
    mode: ParseMode = "PERMISSIVE"


class FilesSource(PolledSource):
    """Lines as they are written, parsed by Spark; or the rows of Parquet files as they appear."""

    def __init__(self, name: str, rows: FileRows, options: dict[str, str], origin: str) -> None:
        super().__init__(name, options | {"skipHeader": str(rows.header).lower()}, origin)
        self._rows = rows
        self._options = FileLinesOptions.from_spark(self._texts)
        self.format = "parquet" if rows.format == "parquet" else "filelines"
        self._check()

    def mode(self) -> Mode:
        return DESTRUCTIVE_POLLING if self._options.delete_after_read else POLLING

    def options(self) -> dict[str, str]:
        if self._rows.format != "parquet":
            return super().options()
        clean = {"cleanSource": "delete"} if self._options.delete_after_read else {}
        return {"maxFilesPerTrigger": str(self._options.max_files_per_trigger), **clean}

    def load(self, stream: Any) -> Any:
        if self._rows.format == "parquet":
            reader = stream.format("parquet").options(**self.options()).schema(self._schema(stream))
            return parquet_rows(reader.load(self._options.path))
        frame = super().load(stream)
        schema = "" if self._rows.format == "text" else self._schema(stream)
        return parse_lines(frame, self._rows.format, schema, self._rows.mode)

    def commit(self, end: Offset) -> None:
        """Remove the files that this batch finished, if that is wanted. Spark does it for Parquet."""
        if self._options.delete_after_read and self._rows.format != "parquet":
            remove_finished(Point.from_offset(end).ranges)

    def check(self) -> str:
        path = self._options.path
        files = scan(path)
        for found in files[:_MOST_CHECKED]:
            try:
                Path(found.path).open("rb").close()
            except OSError as error:
                raise unreadable(error, found.path) from None
        folder = Path(re.split(r"[*?\[]", path, maxsplit=1)[0])
        if not files and not any(each.is_dir() for each in (folder, folder.parent)):
            raise self._refused(f"there is no {path}", "make the directory, or correct path")
        return f"{len(files)} files in {path}"

    def lag(self, end: Offset | None) -> Lag | None:
        """In bytes: nobody knows how many lines there are before they are read. Of Parquet, only Spark knows."""
        if self._rows.format == "parquet":
            return None
        return Lag(bytes=bytes_left(self._options, Point.from_offset(end) if end else None))

    def reached(self, end: Offset) -> dict[str, Any]:
        index = Index.load(self._options.index_path) if self._rows.format != "parquet" else None
        if index is None:
            return {}
        point = Point.from_offset(end)
        files = index.advance(point).files if index.batch == point.batch - 1 else index.files
        return {"files": [{"file": file.path, "byte": file.position} for file in files]}

    def describe(self) -> dict[str, Any]:
        return {"path": self._options.path, "format": self._rows.format}

    def _schema(self, stream: Any) -> str:
        """What was given, or what the files that are there now look like."""
        if self._rows.schema:
            return self._rows.schema
        session, path = stream._spark, self._options.path
        try:
            if self._rows.format == "parquet":
                found = session.read.parquet(path)
            else:
                found = session.read.csv(path, header=True, inferSchema=True, escape='"')
            return str(found._jdf.schema().toDDL())
        except Exception as error:
            if type(error).__name__ != "AnalysisException":  # pyspark stays out of this module
                raise
            raise self._refused("there are no files to find the schema in", "give the schema") from None

    def _check(self) -> None:
        rows = self._rows
        if rows.format not in get_args(Format) or rows.mode not in get_args(ParseMode):
            raise self._refused(
                f"format {rows.format!r}, mode {rows.mode!r}",
                f"formats: {', '.join(get_args(Format))}; modes: {', '.join(get_args(ParseMode))}",
            )
        has_own = rows.format in ("parquet", "text") or (rows.format == "csv" and rows.header)
        if not rows.schema and not has_own:
            raise self._refused(f"the format {rows.format} needs a schema", 'such as "id bigint, name string"')
        if rows.header and rows.format != "csv":
            raise self._refused("only CSV has a header", "remove header")

    def _refused(self, message: str, remedy: str) -> ConfigError:
        return ConfigError(message, where=f"sources.{self.name}", remedy=remedy)
