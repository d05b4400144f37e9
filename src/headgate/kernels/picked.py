"""Names of the columns that are picked of changed rows, for those who do not decode them."""

from __future__ import annotations

__all__ = ["PICKS_ABSENT", "pick_column"]

PICKS_ABSENT = "_picks_absent"


def pick_column(name: str) -> str:
    """What a picked column is called; a table may have columns with names like ours."""
    return f"_pick_{name}"
