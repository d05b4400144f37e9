"""Slot and publication: found, checked, created when allowed; refused with the SQL that mends it otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from headgate.model import AuthError, ConfigError, HeadgateError, StateError
from headgate.sources.postgres_cdc.replication import connect_error
from headgate.wire.pgoutput import parse_lsn

__all__ = ["SlotState", "connect", "ensure_publications", "ensure_slot", "server_lsn", "slot_state"]

_SLOT = """
select plugin, database, slot_type, active, active_pid, to_jsonb(s) ->> 'wal_status' as wal_status,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '') as invalidation_reason,
       confirmed_flush_lsn::text as confirmed, restart_lsn::text as restart,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint as lag_bytes,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint as retained_bytes
from pg_replication_slots s where slot_name = %s
"""

Connection = psycopg.Connection[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as `pg_replication_slots` shows it."""

    name: str
    confirmed_lsn: int
    active_pid: int | None
    wal_status: str
    lag_bytes: int
    retained_bytes: int


def connect(url: str) -> Connection:
    """An ordinary connection, for the catalog. Errors are ours."""
    try:
        return psycopg.connect(
            url, connect_timeout=10, autocommit=True, row_factory=dict_row, application_name="headgate"
        )
    except psycopg.OperationalError as error:
        raise connect_error(str(error), "postgres") from None


def server_lsn(connection: Connection) -> int:
    """How far the server has written by now."""
    row = connection.execute("select pg_current_wal_lsn()::text as lsn").fetchone()
    assert row is not None
    return parse_lsn(row["lsn"])


def slot_state(connection: Connection, name: str) -> SlotState | None:
    """The slot, or None when there is none."""
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    _refuse_unusable(connection, name, row)
    return SlotState(
        name,
        parse_lsn(row["confirmed"]) if row["confirmed"] else 0,
        row["active_pid"],
        row["wal_status"] or "unknown",
        row["lag_bytes"],
        row["retained_bytes"],
    )


def _refuse_unusable(connection: Connection, name: str, row: dict[str, Any]) -> None:
    where = f"slot {name}"
    drop = f"if nothing else uses it: SELECT pg_drop_replication_slot('{name}');"
    if row["slot_type"] != "logical" or row["plugin"] != "pgoutput":
        kind = row["plugin"] or row["slot_type"]
        raise StateError(
            f"the slot is of kind {kind}, not pgoutput", where=where, remedy=f"choose another name, or {drop}"
        )
    if row["database"] != connection.info.dbname:
        raise StateError(
            f"the slot belongs to the database {row['database']}, not {connection.info.dbname}",
            where=where,
            remedy="choose another slot name, or correct the database in the address",
        )
    if row["wal_status"] == "lost" or row["invalidation_reason"]:
        reason = row["invalidation_reason"] or "its WAL was removed"
        raise StateError(
            f"the slot is lost ({reason}): changes after its position can no longer be read",
            where=where,
            remedy=f"drop it, reset the pipeline, and take a new snapshot; {drop}",
        )


def ensure_slot(connection: Connection, name: str, *, failover: bool = False) -> SlotState:
    """The slot, created if it is missing."""
    known = slot_state(connection, name)
    if known is not None:
        return known
    statement = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
    if failover:
        if connection.info.server_version < 170000:
            raise ConfigError(
                "failover slots need PostgreSQL 17", where=f"slot {name}", remedy="upgrade, or turn failover off"
            )
        statement = "select pg_create_logical_replication_slot(%s, 'pgoutput', false, false, true)"
    try:
        connection.execute(statement, [name])
    except psycopg.Error as error:
        raise _creation_error(error, connection, name) from None
    created = slot_state(connection, name)
    assert created is not None
    return created


def _creation_error(error: psycopg.Error, connection: Connection, name: str) -> HeadgateError:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        role = sql.Identifier(connection.info.user).as_string(None)
        return AuthError(
            f"the role {connection.info.user} may not create the slot {name}",
            where=f"slot {name}",
            remedy=f"ALTER ROLE {role} REPLICATION;",
        )
    return connect_error(str(error), f"slot {name}")


def ensure_publications(connection: Connection, names: tuple[str, ...], create_for: tuple[str, ...]) -> None:
    """Every publication, created for the given tables (`*` for all) if missing and allowed."""
    for name in names:
        known = connection.execute("select 1 from pg_publication where pubname = %s", [name]).fetchone()
        if known is None:
            _create_publication(connection, name, create_for)


def _create_publication(connection: Connection, name: str, tables: tuple[str, ...]) -> None:
    quoted = ", ".join(sql.Identifier(*table.split(".", 1)).as_string(None) for table in tables or ("your_table",))
    target = "FOR ALL TABLES" if "*" in tables else f"FOR TABLE {quoted}"
    statement = f"CREATE PUBLICATION {sql.Identifier(name).as_string(None)} {target} WITH (publish_via_partition_root)"
    if not tables:
        raise StateError(f"there is no publication {name}", where=f"publication {name}", remedy=f"{statement};")
    try:
        connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise AuthError(
            f"the role {connection.info.user} may not create the publication {name}: {error.diag.message_primary}",
            where=f"publication {name}",
            remedy=f"have its owner run: {statement};",
        ) from None
    except psycopg.Error as error:
        raise StateError(
            f"the publication {name} cannot be created: {error.diag.message_primary or error}",
            where=f"publication {name}",
            remedy=f"correct the tables, or create it yourself: {statement};",
        ) from None
