"""Connections of the poller, and PostgreSQL's errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from headgate.model import AuthError, ConfigError, DataError, HeadgateError
from headgate.postgres import Connection, postgres_error
from headgate.sources.postgres_snapshot.connections import connect_pinned

__all__ = ["Connection", "connected"]

# The statement is wrong, or names what is not there: the same way every time.
_MISTAKES = (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError)


@contextmanager
def connected(url: str, where: str) -> Iterator[Connection]:
    """A connection whose values have canonical texts; `where` is the table, for errors."""
    try:
        with connect_pinned(url, "headgate poll") as connection:
            yield connection
    except psycopg.Error as error:
        raise _ours(error, where) from None


def _ours(error: psycopg.Error, where: str) -> HeadgateError:
    message = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return AuthError(
            message,
            where=where,
            remedy=f"GRANT SELECT ON {where}, and DELETE or UPDATE (the processed column) if rows are taken away",
        )
    if isinstance(error, _MISTAKES):
        return ConfigError(message, where=where, remedy="correct the columns or the filter of the source")
    if isinstance(error, psycopg.IntegrityError):
        return DataError(message, where=where, remedy="another table refers to delivered rows; use a processed column")
    return postgres_error(error, where)
