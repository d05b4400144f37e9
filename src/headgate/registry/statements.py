"""The SQL of the registry, from `statements.sql`: each statement follows a line `-- name: ...` and its description."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["sql"]

_MARK = "-- name: "


@cache
def _statements() -> dict[str, bytes]:
    text = resources.files(__package__).joinpath("statements.sql").read_text()
    blocks = (block.partition("\n") for block in text.split(_MARK)[1:])
    return {name.strip(): body.strip().encode() for name, _, body in blocks}


def sql(name: str) -> bytes:
    """One statement."""
    return _statements()[name]
