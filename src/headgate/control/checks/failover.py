"""Would the slot survive a failover? Asked of the primary, and of every other server in the address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import conninfo, sql

from headgate.control.checks.verdict import Check, Outcome
from headgate.model import HeadgateError
from headgate.postgres import connect

__all__ = ["check_failover", "primary_of"]

_FAILOVER_SLOTS = 170000

_PRIMARY = """
select current_setting('synchronized_standby_slots') as wanted,
       (select coalesce((to_jsonb(s) ->> 'failover')::boolean, false)
        from pg_catalog.pg_replication_slots s where slot_name = %(slot)s) as is_failover,
       (select array_agg(slot_name::text order by slot_name) from pg_catalog.pg_replication_slots
        where slot_type = 'physical' and active) as standby_slots
"""

_STANDBY = """
select pg_is_in_recovery() as is_standby, current_setting('sync_replication_slots') as sync,
       current_setting('hot_standby_feedback') as feedback, current_setting('primary_slot_name') as primary_slot,
       (select (to_jsonb(s) ->> 'synced')::boolean and not temporary
        from pg_catalog.pg_replication_slots s where slot_name = %(slot)s) as is_synced
"""

Connection = psycopg.Connection[dict[str, Any]]


def primary_of(url: str) -> str:
    """The address, so that of several servers the primary is meant."""
    settings = conninfo.conninfo_to_dict(url)
    if "," not in str(settings.get("host") or "") or settings.get("target_session_attrs"):
        return url
    return conninfo.make_conninfo(url, target_session_attrs="primary")


def check_failover(connection: Connection, slot: str, url: str) -> Iterator[Check]:
    """PostgreSQL 17, a slot that is made for it, a primary that waits for its standbys, standbys that copy the slot."""
    if connection.info.server_version < _FAILOVER_SLOTS:
        yield Check(
            "failover", Outcome.FAIL, "slots do not survive a failover before PostgreSQL 17", "failover = false"
        )
        return
    row = connection.execute(_PRIMARY, {"slot": slot}).fetchone()
    assert row is not None
    yield _slot(slot, row["is_failover"], url)
    yield _waits(row["wanted"], row["standby_slots"] or [])
    for host in _other_hosts(connection, url):
        yield from _standby(host, slot)


def _slot(slot: str, is_failover: bool | None, url: str) -> Check:
    if is_failover is None:
        return Check("failover slot", Outcome.OK, "created at the first start, for failover")
    if is_failover:
        return Check("failover slot", Outcome.OK, "the slot is made for failover")
    database = conninfo.conninfo_to_dict(url).get("dbname") or ""
    command = f'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)'
    fix = f"psql 'dbname={database} replication=database' -c '{command}' # while nothing reads the slot"
    return Check("failover slot", Outcome.FAIL, "the slot was made without failover: no standby copies it", fix)


def _waits(wanted: str, standby_slots: list[str]) -> Check:
    """Without it the bridge may be ahead of the standby that is promoted, and delivers what that one never had."""
    subject = "synchronized_standby_slots"
    missing = [name for name in map(str.strip, wanted.split(",")) if name and name not in standby_slots]
    if wanted.strip() and not missing:
        return Check(subject, Outcome.OK, wanted)
    if missing:
        fix = f"start the standby that uses the slot, or take it out of {subject}: until then nothing is delivered"
        return Check(subject, Outcome.WARN, f"no standby uses {', '.join(missing)}", fix)
    names = ", ".join(standby_slots) or "slot_of_your_standby"
    fix = f"ALTER SYSTEM SET {subject} = {sql.Literal(names).as_string(None)}; SELECT pg_reload_conf();"
    return Check(subject, Outcome.WARN, "empty: a promoted standby may lack what was already delivered", fix)


def _other_hosts(connection: Connection, url: str) -> Iterator[str]:
    """An address for each server of a list but the one we are connected to."""
    settings = conninfo.conninfo_to_dict(url)
    hosts = str(settings.get("host") or "").split(",")
    ports = str(settings.get("port") or "").split(",")
    for number, host in enumerate(hosts):
        port = ports[number] if number < len(ports) else ports[0]
        if len(hosts) > 1 and (host, port or "5432") != (connection.info.host, str(connection.info.port)):
            yield conninfo.make_conninfo(url, host=host, port=port, target_session_attrs="any")


def _standby(address: str, slot: str) -> Iterator[Check]:
    settings = conninfo.conninfo_to_dict(address)
    subject = f"standby {settings['host']}:{settings.get('port') or 5432}"
    try:
        with connect(address, "headgate check") as connection:
            row = connection.execute(_STANDBY, {"slot": slot}).fetchone()
    except (psycopg.Error, HeadgateError) as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[-1]
        yield Check(subject, Outcome.WARN, reason, "start it, or take it out of the address")
        return
    assert row is not None
    yield _standby_settings(subject, row)


def _standby_settings(subject: str, row: dict[str, Any]) -> Check:
    if not row["is_standby"]:
        return Check(subject, Outcome.WARN, "is no standby", "take it out of the address, or make it one")
    wanted = {"sync_replication_slots": row["sync"] == "on", "hot_standby_feedback": row["feedback"] == "on"}
    wrong = [f"{name} is off" for name, is_on in wanted.items() if not is_on]
    statements = [f"ALTER SYSTEM SET {name} = on;" for name, is_on in wanted.items() if not is_on]
    if not row["primary_slot"]:
        wrong.append("primary_slot_name is empty")
        statements.append("ALTER SYSTEM SET primary_slot_name = 'its_slot_on_the_primary';")
    if wrong:
        fix = " ".join([*statements, "SELECT pg_reload_conf(); -- on the standby"])
        return Check(subject, Outcome.WARN, ", ".join(wrong), fix)
    if not row["is_synced"]:
        return Check(subject, Outcome.WARN, "has no copy of the slot yet", "wait; the standby's log says for what")
    return Check(subject, Outcome.OK, "copies the slot")
