"""How far mirrors are, as PostgreSQL knows it; no other cluster is asked."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import psycopg
from psycopg.rows import dict_row

from headgate.model import StateError, UsageError
from headgate.postgres.statements import named_statements

__all__ = ["link_statuses"]

_SQL = named_statements("headgate.shadow")
_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)


def link_statuses(connection: psycopg.Connection, name: str | None = None) -> list[dict[str, Any]]:
    """Return every link, or the one of that name, with its topics, their lag, and the offsets of its groups.

    Raises `UsageError` if there is none of that name, and `StateError` if this database has no mirrors at all.
    """
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            links = cursor.execute(_SQL["links"]).fetchall()
            found = [each for each in links if name in (None, each["name"])]
            for link in found:
                link["topics"] = cursor.execute(_SQL["topics_of_link"], [link["name"]]).fetchall()
                offsets = cursor.execute(_SQL["groups_of_link"], [link["name"]]).fetchall()
                link["group_offsets"] = [each for each in offsets if _goes_along(each["group"], link["groups"])]
    except _MISSING:
        raise StateError(
            "this database has no mirrors", where="schema kafka", remedy="start a pipeline with a shadow destination"
        ) from None
    if name is not None and not found:
        known = ", ".join(each["name"] for each in links) or "none"
        raise UsageError(f"there is no link {name}", remedy=f"links here: {known}")
    return found


def _goes_along(group: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(group, pattern) for pattern in patterns)
