"""The schema `registry`, made or brought up to date. Any number of processes may do this at once."""

from __future__ import annotations

from functools import cache
from importlib import resources

import psycopg

from headgate.model import ConnectError, OccupiedError
from headgate.postgres import open_connection
from headgate.postgres.migrations import Plan, migrate, numbered_steps

__all__ = ["install", "plan", "prepare"]


@cache
def plan() -> Plan:
    return Plan("registry", numbered_steps(resources.files(__package__).joinpath("sql")), "headgate registry tables")


def install(connection: psycopg.Connection) -> None:
    """Run what this database has not had yet, in one transaction. Needs no more than CREATE on the database."""
    try:
        migrate(connection, plan())
    except psycopg.errors.LockNotAvailable as error:
        raise OccupiedError(
            "the schema registry cannot be brought up to date: a transaction that is open uses its tables",
            remedy="try again when it has ended: see pg_stat_activity, for a backup or a query that runs for long",
        ) from error


def prepare(url: str) -> None:
    """Connect and install; raise ConnectError if PostgreSQL does not answer."""
    try:
        with open_connection(url, "headgate registry") as connection:
            install(connection)
    except psycopg.OperationalError as error:
        raise ConnectError(
            f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
        ) from None
