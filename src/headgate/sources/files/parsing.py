"""Lines as rows, by Spark's own parsers: SQL expressions over the columns of `filelines`."""

from __future__ import annotations

from typing import Any, Literal

from headgate.model.record import OP, POSITION
from headgate.sources.files.lines import FILE, OFFSET

__all__ = ["CORRUPT", "Format", "ParseMode", "parquet_rows", "parse_lines"]

Format = Literal["jsonl", "csv", "parquet", "text"]
ParseMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

CORRUPT = "_corrupt_record"
_PARSERS = {"jsonl": "from_json", "csv": "from_csv"}
_RESERVED = (FILE, OFFSET, OP)


def parse_lines(frame: Any, line_format: Format, schema: str, mode: ParseMode) -> Any:
    """A DataFrame of lines as one of the schema's columns. A blank line is no row."""
    if line_format == "text":
        return frame
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    if line_format == "csv":
        settings["escape"] = '"'  # a quote is doubled, as everybody but Spark writes it
    options = ", ".join(quoted(text) for pair in settings.items() for text in pair)
    parsed = f"{_PARSERS[line_format]}(value, {quoted(f'{schema}, {CORRUPT} string')}, map({options})) as parsed"
    rows = frame.where("trim(value) <> ''").selectExpr(parsed, POSITION, *_RESERVED)
    if mode == "DROPMALFORMED":
        rows = rows.where(f"parsed.{CORRUPT} is null")
    position = _failing_position() if mode == "FAILFAST" else POSITION
    rows = rows.selectExpr("parsed.*", f"{position} as {POSITION}", *_RESERVED)
    return rows if mode == "PERMISSIVE" else rows.drop(CORRUPT)


def _failing_position() -> str:
    """Spark's own message for this mode does not say where the line is."""
    message = f"concat('the line at byte ', {OFFSET}, ' of ', {FILE}, ' does not parse')"
    return f"if(parsed.{CORRUPT} is null, {POSITION}, raise_error({message}))"


def parquet_rows(frame: Any) -> Any:
    """Rows with a position: the file's time and a hash of its path, which is Spark's order, then the row's number."""
    time = "lpad(hex(unix_micros(_metadata.file_modification_time)), 16, '0')"
    file = "upper(substr(sha2(_metadata.file_path, 256), 1, 16))"
    row = "lpad(hex(_metadata.row_index), 8, '0')"
    return frame.selectExpr(
        "*",
        f"concat_ws('-', {time}, {file}, {row}) as {POSITION}",
        f"_metadata.file_path as {FILE}",
        f"_metadata.row_index as {OFFSET}",
        f"'read' as {OP}",
    )


def quoted(text: str) -> str:
    """A text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
