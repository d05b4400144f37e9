"""The SQL of the store, from `statements.sql`: each statement follows a line `-- name: ...` and its description."""

from __future__ import annotations

from headgate.postgres.statements import named_statements

__all__ = ["sql"]


def sql(name: str) -> bytes:
    """One statement."""
    return named_statements(__package__)[name]
