"""What several kinds of destinations look at before anything is written to them."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

from headgate.destinations.base import Lane
from headgate.model import AuthError, ConfigError

__all__ = ["check_directory", "check_one_task", "check_schema"]

_SCHEMA = """
select current_database() as database, to_regnamespace(%s) is not null as is_there,
  coalesce(has_schema_privilege(to_regnamespace(%s)::oid, 'usage'), false) as may_use,
  has_database_privilege(current_database(), 'create') as may_create
"""


def check_schema(connection: psycopg.Connection, schema: str) -> str:
    """Whether headgate's schema is there and may be used, or may be made."""
    database, is_there, may_use, may_create = connection.execute(_SCHEMA, [schema, schema]).fetchall()[0]
    if is_there and not may_use:
        raise AuthError(f"the schema {schema} may not be used", remedy=f"GRANT USAGE ON SCHEMA {schema} TO the role")
    if not is_there and not may_create:
        raise AuthError(
            f"there is no schema {schema} in {database}, and it may not be made",
            remedy=f"GRANT CREATE ON DATABASE {database} TO the role, or make it as somebody who may",
        )
    return f"schema {schema} in {database}" if is_there else f"schema {schema} is made in {database} at the first start"


def check_one_task(lane: Lane) -> None:
    """Raise ConfigError unless the lane is the only one of its batch, as rows in one order must have it."""
    if lane.task:
        raise ConfigError(
            "rows of several tasks at once have no common order",
            where="exclusive",
            remedy="set exclusive = false on the destination, or read the source in one partition",
        )


def check_directory(path: str) -> str:
    """Whether a local directory may be written to, or may be made."""
    found = Path(path).absolute()
    while not found.exists():
        found = found.parent
    if not found.is_dir() or not os.access(found, os.W_OK | os.X_OK):
        raise AuthError(f"{found} may not be written to", where=path, remedy="correct the path, or its rights")
    return str(path)
