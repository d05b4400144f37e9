"""What routing wants of a decoded batch: columns of the changed rows, parts of JSON in them, the names of tables."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.kernels.picked import PICKS_ABSENT, pick_column
from headgate.model import record
from headgate.sources.base import ABSENT, Pick

__all__ = ["pick_values", "picked_columns"]

_OF_EVENT = (record.SCHEMA, record.TABLE, record.OP)


def picked_columns(picks: Sequence[Pick]) -> list[str]:
    """The columns of changed rows that are needed."""
    first = [path.split(".")[0] for pick in picks for path in pick.paths]
    return sorted({name for name in first if name not in _OF_EVENT})


def pick_values(rows: pa.RecordBatch, picks: Sequence[Pick]) -> dict[str, pa.Array]:
    """The picked values of each row, by the names they shall have."""
    if not picks:
        return {}
    values = {pick.name: _joined([_value(rows, path) for path in pick.paths]) for pick in picks}
    has_absent = PICKS_ABSENT in rows.schema.names
    return values | ({ABSENT: rows.column(PICKS_ABSENT)} if has_absent else {})


def _value(rows: pa.RecordBatch, path: str) -> pa.Array:
    if path in _OF_EVENT:
        return rows.column(path)
    name, *inside = path.split(".")
    column = rows.column(pick_column(name))
    return _inside(column, inside) if inside else column


def _joined(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "/")


def _inside(column: pa.Array, path: list[str]) -> pa.Array:
    """A value inside JSON, once for each distinct text."""
    texts = column.dictionary_encode()
    found = pa.array([_at(text, path) for text in texts.dictionary.to_pylist()], pa.string())
    return found.take(texts.indices)


def _at(text: str, path: list[str]) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
