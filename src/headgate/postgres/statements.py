"""SQL from a package's `statements.sql`: each statement follows a line `-- name: ...` and what is said of it."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["named_statements"]

_MARK = "-- name: "


@cache
def named_statements(package: str) -> dict[str, bytes]:
    """Return the statements of a package's `statements.sql`, by their names."""
    text = resources.files(package).joinpath("statements.sql").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split(_MARK)[1:])
    return {name.strip(): body.strip().encode() for name, _, body in blocks}
