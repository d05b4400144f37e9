"""Schemas of ours in PostgreSQL: made, brought up to date, and checked. Any number of processes may do this at once.

A schema is the work of its steps, `.sql` files that run once and in their order. The table `migrations` in it has a row
for each, with the SHA-256 of the file. Two histories are refused: one with a step that this version does not know, and
one with a step that reads otherwise than when it was run, since nobody can say what such a schema looks like. Rows of
versions that kept no checksums get them when the schema's owner comes by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources.abc import Traversable
from typing import Literal

import psycopg
from psycopg import sql

from headgate.model import AuthError, StateError

__all__ = ["Plan", "Step", "applied", "migrate", "numbered_steps"]

_NUMBERED = re.compile(r"(\d\d)_\w+\.sql")
_TABLES = {
    "version": "version int primary key, name text not null",
    "name": "name text primary key",
}
_CREATE = "create table if not exists {} ({}, applied_at timestamptz not null default now(), checksum text)"
_IS_OURS = "select pg_catalog.pg_has_role(relowner, 'usage') from pg_catalog.pg_class where oid = %s::regclass"


@dataclass(frozen=True, slots=True)
class Step:
    """One file: the key of its row, its name, and what it does."""

    key: int | str
    name: str
    statements: bytes = field(repr=False)

    @property
    def checksum(self) -> str:
        return sha256(self.statements).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a schema is made. `key` is the column of `migrations` that tells its rows apart."""

    schema: str
    steps: Sequence[Step]
    lock: int | str  # installers queue at this advisory lock
    lock_timeout: str = "3s"  # others queue behind a lock that is waited for: better to give up soon
    key: Literal["version", "name"] = "version"

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, "migrations")


def numbered_steps(folder: Traversable) -> tuple[Step, ...]:
    """The files `01_this.sql`, `02_that.sql`, ... of a folder. Never edit one that was released: add another.

    A number may be missing, but none may come twice. A file whose number lies between those of files that a database
    has had runs there all the same, later than its number says: it must not depend on what comes after it.
    """
    files = sorted((entry for entry in folder.iterdir() if _NUMBERED.fullmatch(entry.name)), key=lambda e: e.name)
    steps = tuple(Step(int(file.name[:2]), file.name, file.read_bytes()) for file in files)
    assert len({step.key for step in steps}) == len(steps), [step.name for step in steps]
    return steps


def applied(connection: psycopg.Connection, plan: Plan) -> dict[int | str, str | None]:
    """The steps that a database has had, with their checksums; empty if the schema was never made."""
    known = connection.execute("select to_regclass(%s) is not null", [plan.table.as_string(connection)]).fetchone()
    if known is None or not known[0]:
        return {}
    query = sql.SQL("select {}, to_jsonb(m) ->> 'checksum' from {} as m")  # versions before have no such column
    return dict(connection.execute(query.format(sql.Identifier(plan.key), plan.table)).fetchall())


def migrate(
    connection: psycopg.Connection, plan: Plan, *, until: Callable[[Step], bool] = lambda step: False
) -> list[Step]:
    """Run what this database has not had yet, in one transaction; stop before the first step that `until` names.

    Returns the steps that were run. A schema that is complete takes no right but to read its table `migrations`.
    Raises StateError for a history that is not ours, AuthError for missing rights, and psycopg's LockNotAvailable.
    """
    try:
        if _missing(plan, done := applied(connection, plan)):
            with connection.transaction():
                return _run_missing(connection, plan, until)
        if None in done.values() and _is_ours(connection, plan):
            with connection.transaction():
                _enter(connection, plan)
                _adopt(connection, plan)
        return []
    except psycopg.errors.InsufficientPrivilege as error:
        raise AuthError(
            f"the schema {plan.schema} cannot be made: {error.diag.message_primary}",
            remedy="grant create on the database to this role, or let the owner of the schema install it",
        ) from error


def _missing(plan: Plan, done: dict[int | str, str | None]) -> list[Step]:
    known = {step.key for step in plan.steps}
    if unknown := sorted(set(done) - known, key=str):
        raise StateError(
            f"the schema {plan.schema} has had {_called(plan, unknown[-1])}, which this headgate does not know",
            remedy="use the headgate that installed it, or a newer one",
        )
    for step in plan.steps:
        if done.get(step.key) not in (None, step.checksum):
            raise StateError(
                f"the schema {plan.schema} has had another {step.name} than this headgate has",
                remedy="install headgate anew; who changes a schema adds a step and leaves released ones as they are",
            )
    return [step for step in plan.steps if step.key not in done]


def _called(plan: Plan, key: int | str) -> str:
    return f"version {key}" if plan.key == "version" else str(key)


def _run_missing(connection: psycopg.Connection, plan: Plan, until: Callable[[Step], bool]) -> list[Step]:
    _enter(connection, plan)
    connection.execute(sql.SQL(_CREATE).format(plan.table, sql.SQL(_TABLES[plan.key])))
    missing = _missing(plan, applied(connection, plan))  # somebody else may have been at it meanwhile
    _adopt(connection, plan)
    run: list[Step] = []
    for step in missing:
        if until(step):
            break
        connection.execute(step.statements)
        _note(connection, plan, step)
        run.append(step)
    return run


def _note(connection: psycopg.Connection, plan: Plan, step: Step) -> None:
    values = {plan.key: step.key, "name": step.name, "checksum": step.checksum}
    columns = sql.SQL(", ").join(map(sql.Identifier, values))
    marks = sql.SQL(", ").join([sql.Placeholder()] * len(values))
    insert = sql.SQL("insert into {} ({}) values ({})").format(plan.table, columns, marks)
    connection.execute(insert, list(values.values()))


def _enter(connection: psycopg.Connection, plan: Plan) -> None:
    """Wait for one's turn, and see to it that names mean what they say: the schema's own, and never a temporary one."""
    key = "%s::bigint" if isinstance(plan.lock, int) else "pg_catalog.hashtextextended(%s, 0)"
    connection.execute(f"select pg_catalog.pg_advisory_xact_lock({key})".encode(), [plan.lock])
    schema = sql.Identifier(plan.schema)
    there = connection.execute("select to_regnamespace(%s) is not null", [schema.as_string(connection)]).fetchone()
    if there is None or not there[0]:
        connection.execute(sql.SQL("create schema if not exists {}").format(schema))
    connection.execute("set local client_min_messages = warning")
    connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(plan.lock_timeout)))
    connection.execute(sql.SQL("set local search_path = {}, pg_temp").format(schema))


def _is_ours(connection: psycopg.Connection, plan: Plan) -> bool:
    row = connection.execute(_IS_OURS, [plan.table.as_string(connection)]).fetchone()
    return row is not None and bool(row[0])


def _adopt(connection: psycopg.Connection, plan: Plan) -> None:
    """Give their checksums to steps of versions that kept none."""
    connection.execute(sql.SQL("alter table {} add column if not exists checksum text").format(plan.table))
    update = sql.SQL("update {} set checksum = %s where {} = %s and checksum is null")
    text = update.format(plan.table, sql.Identifier(plan.key))
    with connection.cursor() as cursor:
        cursor.executemany(text, [(step.checksum, step.key) for step in plan.steps])
