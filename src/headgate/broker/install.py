"""The schema of the broker, made, brought up to date or removed. Any number of processes may do this at once.

The files in `sql/` are run in the order of their names, `<version>_<number>_<phase>_<what>.sql`. Those of the phase
`pre` only add: programs of the version before go on working beside them, because functions carry a version in their
names. Those of the phase `post` remove what only those programs needed, and are for when all of them have ended.
`psql -1 -f install.sql` does the same as `install`.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable
from importlib import resources
from itertools import chain, repeat

import psycopg
from psycopg import sql

from headgate.model import UsageError
from headgate.postgres.migrations import Plan, Step, applied, migrate

__all__ = ["DEFAULT_SCHEMA", "Phase", "install", "installed", "migrations", "uninstall"]

DEFAULT_SCHEMA = "headgate"

# Channels and roles are named after the schema, with something behind it; PostgreSQL cuts names at 63 bytes.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_FILE = re.compile(r"\d+\.\d+\.\d+_\d\d_(pre|post)_\w+\.sql")

_LOCK_TIMEOUT = "500ms"
_PAUSES_S, _TRIES = (0.05, 0.1, 0.2, 0.5, 1.0), 100


class Phase(enum.StrEnum):
    """How far to go: what old programs survive, or all."""

    PRE = "pre"
    POST = "post"


def migrations() -> list[str]:
    """The names of all steps, in their order."""
    names = [entry.name for entry in resources.files(__package__).joinpath("sql").iterdir()]
    return sorted((name[:-4] for name in names if _FILE.fullmatch(name)), key=_order)


def install(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA, *, phase: Phase = Phase.POST) -> list[str]:
    """Run what this database has not had yet, in one transaction; what that was. CREATE on the database is enough."""
    # What comes after a removal may depend on it, so it waits, too.
    until = (lambda step: _phase(step.name) is Phase.POST) if phase is Phase.PRE else (lambda step: False)
    return _patiently(lambda: [step.name for step in migrate(connection, _plan(schema), until=until)])


def _plan(schema: str) -> Plan:
    _check_name(schema)
    return Plan(schema, _steps(), f"headgate broker {schema}", _LOCK_TIMEOUT, key="name")


def _steps() -> tuple[Step, ...]:
    folder = resources.files(__package__).joinpath("sql")
    return tuple(Step(name, name, folder.joinpath(f"{name}.sql").read_bytes()) for name in migrations())


def _patiently(work: Callable[[], list[str]]) -> list[str]:
    """Programs at work lock the same tables in another order. So that none of them is the victim of a deadlock, which
    PostgreSQL looks for after a second, we give up before that, and begin again.
    """
    for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1], _TRIES)):
        try:
            return work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            time.sleep(pause_s)
    return work()


def installed(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> list[str]:
    """The steps that a database has had; none if the broker is not installed."""
    return sorted(map(str, applied(connection, _plan(schema))), key=_order)


def uninstall(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> bool:
    """Remove the broker with all events, and its role unless another database uses it. False: there was none."""
    if not installed(connection, schema):
        return False
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [_plan(schema).lock])
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))
    role = sql.Identifier(f"{schema}_conditions")
    try:
        with connection.transaction():
            connection.execute(sql.SQL("drop role if exists {}").format(role))
    except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.InsufficientPrivilege):
        pass  # it belongs to the cluster: somebody else has a broker there, or made the role
    return True


def _check_name(schema: str) -> None:
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise UsageError(
            f"{schema!r} cannot be the broker's schema", remedy="use at most 40 small letters, digits and underscores"
        )


def _phase(name: str) -> Phase:
    return Phase(name.split("_")[2])


def _order(name: str) -> tuple[tuple[int, ...], str]:
    version, _, rest = name.partition("_")
    return tuple(int(part) for part in version.split(".")), rest
