"""The schema `kafka`, made or brought up to date. Any number of processes may do this at once."""

from __future__ import annotations

from importlib import resources

import psycopg

from headgate.model import AuthError, OccupiedError, StateError

__all__ = ["VERSION", "install"]

# In the order in which they are run; the version of a schema is how many of them it has had. Never edit the past:
# a released file stays as it is, and changes come as a file of their own.
_STEPS = (
    "log.sql",
    "door.sql",
    "brokers.sql",
    "groups.sql",
    "writers.sql",
    "inbox.sql",
    "queries.sql",
    "versions.sql",
    "comments.sql",
)
VERSION = len(_STEPS)

_LOCK = 0x6B61666B61  # "kafka": the advisory lock that installers queue at
# Others queue behind a lock that is waited for: better to give up, if a backup has the table.
_LOCK_TIMEOUT = "set local lock_timeout = '3s'"
_SETUP = """
create schema if not exists kafka;
create table if not exists kafka.migrations (
  version int primary key, name text not null, applied_at timestamptz not null default now());
"""


def install(connection: psycopg.Connection) -> None:
    """Run what this database has not had yet, in one transaction. Needs no more than CREATE on the database."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
        try:
            done = _versions(connection)
            connection.execute(_LOCK_TIMEOUT)
            for version, name in enumerate(_STEPS, start=1):
                if version not in done:
                    _run(connection, version, name)
        except psycopg.errors.LockNotAvailable as error:
            raise OccupiedError(
                "the schema kafka cannot be brought up to date: a transaction that is open uses its tables",
                remedy="try again when it has ended: see pg_stat_activity, for a backup or a query that runs for long",
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise AuthError(
                f"the schema kafka cannot be made: {error.diag.message_primary}",
                remedy="grant create on the database to the gateway's role, or let the owner of the schema install it",
            ) from error


def _versions(connection: psycopg.Connection) -> set[int]:
    known = connection.execute("select to_regclass('kafka.migrations') is not null").fetchone()
    if known is None or not known[0]:
        connection.execute(_SETUP)
    done = {row[0] for row in connection.execute("select version from kafka.migrations")}
    if done and max(done) > VERSION:
        raise StateError(
            f"the schema kafka has version {max(done)}, this headgate knows {VERSION}",
            remedy="use the headgate that installed it, or a newer one",
        )
    return done


def _run(connection: psycopg.Connection, version: int, name: str) -> None:
    statements = resources.files(__package__).joinpath("sql", name).read_bytes()
    connection.execute(statements)
    connection.execute("insert into kafka.migrations (version, name) values (%s, %s)", [version, name])
