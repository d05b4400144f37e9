"""Slot and publication: found, checked, created when allowed; refused with the SQL that mends it otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headgate.model import AuthError, ConfigError, HeadgateError, StateError
from headgate.postgres.connect import Connection
from headgate.postgres.continuity import BEGIN_ANEW
from headgate.postgres.errors import postgres_error
from headgate.postgres.replication import PublicationAway
from headgate.wire.envelope import GAP_PREFIX, HEARTBEAT_PREFIX
from headgate.wire.pgoutput import parse_lsn

__all__ = [
    "SlotState",
    "create_slot",
    "emit_heartbeat",
    "ensure_publications",
    "held_lsn",
    "mark_gap",
    "refuse_failover_before_17",
    "server_lsn",
    "slot_state",
]


_SLOT = """
select plugin, database, slot_type, active, active_pid, to_jsonb(s) ->> 'wal_status' as wal_status,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '') as invalidation_reason,
       coalesce((to_jsonb(s) ->> 'failover')::boolean, false) as failover,
       coalesce((to_jsonb(s) ->> 'two_phase')::boolean, false) as two_phase,
       (to_jsonb(s) ->> 'safe_wal_size')::bigint as safe_wal_bytes,
       confirmed_flush_lsn::text as confirmed, restart_lsn::text as restart,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint as lag_bytes,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint as retained_bytes
from pg_replication_slots s where slot_name = %s
"""


_HELD = """
select confirmed_flush_lsn::text as confirmed from pg_replication_slots where slot_name = %s and active_pid = %s
"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as `pg_replication_slots` shows it."""

    name: str
    confirmed_lsn: int
    active_pid: int | None
    wal_status: str
    lag_bytes: int
    retained_bytes: int
    failover: bool = False
    safe_wal_bytes: int | None = None  # what may still be written before the slot is lost; None without a limit


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
        row["failover"],
        row["safe_wal_bytes"],
    )


def _refuse_unusable(connection: Connection, name: str, row: dict[str, Any]) -> None:
    where = f"slot {name}"
    drop = f"if nothing else uses it: SELECT pg_drop_replication_slot('{name}');"
    if row["slot_type"] != "logical" or row["plugin"] != "pgoutput":
        kind = row["plugin"] or row["slot_type"]
        raise StateError(
            f"the slot is of kind {kind}, not pgoutput", where=where, remedy=f"choose another name, or {drop}"
        )
    if row["two_phase"]:
        raise StateError(
            "the slot was made with two_phase, and sends transactions before they are committed",
            where=where,
            remedy=f"choose another name, or {drop}",
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
            remedy=f"SELECT pg_drop_replication_slot('{name}'); then {BEGIN_ANEW}",
        )


def create_slot(connection: Connection, name: str, *, failover: bool = False) -> SlotState:
    """A new slot, which begins where the server is now."""
    statement = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
    if failover:
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
    if error.sqlstate == "55000":
        return StateError(
            error.diag.message_primary or str(error),
            where=f"slot {name}",
            remedy="ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL",
        )
    return postgres_error(error, f"slot {name}")


def refuse_failover_before_17(connection: Connection, name: str) -> None:
    if connection.info.server_version < 170000:
        raise ConfigError(
            "failover slots need PostgreSQL 17", where=f"slot {name}", remedy="upgrade, or turn failover off"
        )


def held_lsn(connection: Connection, name: str, pid: int) -> int | None:
    """Where a slot stands while a walsender of ours holds it, so that nobody else can move it; None if it does not."""
    row = connection.execute(_HELD, [name, pid]).fetchone()
    return parse_lsn(row["confirmed"]) if row is not None else None


def mark_gap(connection: Connection, reason: str, tables: list[tuple[str, str]] | None = None, **more: object) -> int:
    """Tell everybody who follows the stream that changes of these tables, or of all, are missing; the marker's LSN.

    The marker is a message in the WAL: it has a place in the order of things, and survives whatever happens to us.
    """
    content = json.dumps({"reason": reason, "tables": tables, **more})
    query = "select pg_catalog.pg_logical_emit_message(true, %s, %s)::text as lsn"
    try:
        row = connection.execute(query, [GAP_PREFIX, content]).fetchone()
    except psycopg.Error as error:
        raise postgres_error(error, "gap marker") from None
    assert row is not None
    return parse_lsn(row["lsn"])


def emit_heartbeat(connection: Connection, slot: str) -> None:
    """Write a message into the WAL that becomes a heartbeat for whoever reads this slot."""
    try:
        connection.execute("select pg_catalog.pg_logical_emit_message(true, %s, %s::text)", [HEARTBEAT_PREFIX, slot])
    except psycopg.Error as error:
        raise postgres_error(error, "heartbeat") from None


def ensure_publications(connection: Connection, names: tuple[str, ...], create_for: tuple[str, ...]) -> None:
    """Look for every publication; create a missing one for the given tables (`*` for all) if allowed."""
    for name in names:
        known = connection.execute("select 1 from pg_publication where pubname = %s", [name]).fetchone()
        if known is None:
            _create_publication(connection, name, create_for)


def _create_publication(connection: Connection, name: str, tables: tuple[str, ...]) -> None:
    quoted = ", ".join(sql.Identifier(*table.split(".", 1)).as_string(None) for table in tables or ("your_table",))
    target = "FOR ALL TABLES" if "*" in tables else f"FOR TABLE {quoted}"
    statement = f"CREATE PUBLICATION {sql.Identifier(name).as_string(None)} {target} WITH (publish_via_partition_root)"
    if not tables:
        raise PublicationAway(f"there is no publication {name}", where=f"publication {name}", remedy=f"{statement};")
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
