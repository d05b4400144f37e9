"""What PostgreSQL says about a broker's call, as an error of ours: its kind, and what to do about it.

For the calls of a client. `publish` and `send` on a connection of yours raise what your driver raises: it is your
transaction that has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from headgate.model import AuthError, DataError, HeadgateError, StateError, UsageError
from headgate.postgres.errors import postgres_error

__all__ = ["as_ours", "broker_error"]

_GRANT = "select headgate.grant_usage('consumer', to_role => '...'), or 'publisher' for one that only publishes"

# By SQLSTATE, or by its class.
_KINDS: dict[str, tuple[Callable[..., HeadgateError], str]] = {
    "HG001": (StateError, "another reader has the group: begin again where the group is"),
    "HG002": (StateError, "run select headgate.rebase() once"),
    "42501": (AuthError, _GRANT),
    "42704": (UsageError, "see: headgate broker groups, headgate broker subscriptions"),
    "42883": (StateError, "the schema is of another version: headgate broker install"),
    "42P01": (StateError, "the schema is of another version: headgate broker install"),
    "22023": (UsageError, "see docs/broker.md"),
    "54000": (UsageError, "make it smaller"),
    "22": (DataError, "PostgreSQL cannot store this value; change it"),
    "23": (DataError, "change the value: a topic has 1 to 255 characters, a subscription must exist"),
}


def broker_error(error: psycopg.Error, where: str) -> HeadgateError:
    """An error of psycopg as ours. A hint of the server's is the better remedy."""
    state, hint = error.sqlstate or "", error.diag.message_hint
    make, remedy = _KINDS.get(state) or _KINDS.get(state[:2]) or (None, "")
    if make is None:
        return postgres_error(error, where)
    if state == "42501" and hint:
        make = UsageError  # a condition that is refused
    return make(error.diag.message_primary or str(error), remedy=hint or remedy, where=where)


@contextmanager
def as_ours(where: str) -> Iterator[None]:
    """Raise errors of psycopg as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise broker_error(error, where) from error
