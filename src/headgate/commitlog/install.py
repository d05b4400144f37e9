"""The schema `kafka`, made or brought up to date. Any number of processes may do this at once."""

from __future__ import annotations

from functools import cache
from importlib import resources

import psycopg

from headgate.model import OccupiedError
from headgate.postgres.migrations import Plan, migrate, numbered_steps

__all__ = ["install", "plan"]

_LOCK = 0x6B61666B61  # "kafka": the advisory lock that installers queue at


@cache
def plan() -> Plan:
    return Plan("kafka", numbered_steps(resources.files(__package__).joinpath("sql")), _LOCK)


def install(connection: psycopg.Connection) -> None:
    """Run what this database has not had yet, in one transaction. Needs no more than CREATE on the database."""
    try:
        migrate(connection, plan())
    except psycopg.errors.LockNotAvailable as error:
        raise OccupiedError(
            "the schema kafka cannot be brought up to date: a transaction that is open uses its tables",
            remedy="try again when it has ended: see pg_stat_activity, for a backup or a query that runs for long",
        ) from error
