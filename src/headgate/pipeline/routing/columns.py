"""The values that routing looks at, as Spark expressions: columns, nested fields, JSON, the rows of a change."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, MapType, StringType, StructType

from headgate.model import ConfigError, record

__all__ = ["AFTER", "BEFORE", "BODY", "absent", "path_value", "row_value"]

# What a CDC source adds with `images`: the old and the new row as JSON.
BEFORE, AFTER = "_before", "_after"
BODY = "body"  # of a webhook


def row_value(frame: DataFrame, column: str, where: str) -> Column:
    """A column of the row, as text. For changes: the new row's value, or the old one's where the new has none."""
    if column in frame.columns:
        return f.col(_quoted(column)).cast("string")
    return path_value(frame, column, where)


def path_value(frame: DataFrame, path: str, where: str) -> Column:
    """A dotted path: a column, then fields of structs and maps, or of JSON in text."""
    if path in frame.columns:
        return f.col(_quoted(path)).cast("string")
    first, *rest = path.split(".")
    if first in frame.columns:
        return _inside(f.col(_quoted(first)), frame.schema[first].dataType, rest).cast("string")
    if AFTER in frame.columns:
        steps = _json_path(path.split("."))
        return f.coalesce(f.get_json_object(AFTER, steps), f.get_json_object(BEFORE, steps))
    if BODY in frame.columns:
        return f.get_json_object(f.col(BODY).cast("string"), _json_path(path.split(".")))
    raise ConfigError(
        f"there is no column {first!r} to route by", where=where, remedy=f"columns here: {', '.join(frame.columns)}"
    )


def absent(frame: DataFrame, columns: list[str]) -> Column:
    """Whether a change carries one of these columns neither in its new nor in its old row."""
    if AFTER not in frame.columns or record.OP not in frame.columns:
        return f.lit(False)
    is_change = f.col(record.OP).isin("insert", "update", "delete", "read")
    missing = [f.lit(False)]
    for column in columns:
        if column in frame.columns:
            continue
        mark = f'"{column.split(".")[0]}":'
        rows = f.concat(f.coalesce(f.col(AFTER), f.lit("")), f.coalesce(f.col(BEFORE), f.lit("")))
        missing.append(~f.contains(rows, f.lit(mark)))
    anywhere = missing[0]
    for each in missing[1:]:
        anywhere = anywhere | each
    return is_change & anywhere


def _inside(value: Column, kind: DataType, path: list[str]) -> Column:
    for step, name in enumerate(path):
        if isinstance(kind, StructType):
            if name not in kind.names:
                return f.lit(None)
            value, kind = value.getField(name), kind[name].dataType
        elif isinstance(kind, MapType):
            value, kind = value.getItem(name), kind.valueType
        elif isinstance(kind, StringType):
            return f.get_json_object(value, _json_path(path[step:]))
        else:
            return f.lit(None)
    return value


def _json_path(parts: list[str]) -> str:
    """In brackets, so that a name may hold anything but a quote."""
    return "$" + "".join(f"['{part}']" for part in parts)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
