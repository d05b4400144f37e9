"""Whether a table can take a new shape where it is."""

from __future__ import annotations

from headgate.consume import Column, Schema

__all__ = ["can_reshape"]


def can_reshape(old: Schema, new: Schema) -> bool:
    """Columns that were added without a default, or dropped; everything else needs the rows again.

    Both at once may be a column that was renamed, which keeps its values. A default is the value of a new column in
    rows that are there already, and the stream does not say it.
    """
    before, after = ({column.name: column for column in schema.sent} for schema in (old, new))
    added, dropped = after.keys() - before.keys(), before.keys() - after.keys()
    if (added and dropped) or old.row_key != new.row_key or dropped & set(old.row_key):
        return False
    if not old.row_key and new.replica_identity != old.replica_identity:
        return False
    if any(_type(before[name]) != _type(after[name]) for name in before.keys() & after.keys()):
        return False
    return all(after[name].default is None and after[name].nullable is not False for name in added)


def _type(column: Column) -> tuple[str, int, int]:
    return column.type, column.type_oid, column.typmod
