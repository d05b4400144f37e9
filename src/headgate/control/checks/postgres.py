"""Can this PostgreSQL server feed change data capture, with the role we have?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import LiteralString

import psycopg
from psycopg import sql

from headgate.control.checks.verdict import Check, Outcome, answered, failed
from headgate.model import HeadgateError, Kind
from headgate.postgres import connect

__all__ = ["check_connection", "check_postgres"]

_OLDEST = 140000
_RETAINED_WARNING_BYTES = 1 << 30
_RESTART = "then restart PostgreSQL"

_SETTINGS = """
select current_user as role, current_database() as database,
       current_setting('server_version_num')::int as version_number, current_setting('server_version') as version,
       current_setting('wal_level') as wal_level, pg_is_in_recovery() as is_standby,
       current_setting('max_slot_wal_keep_size') as keep_size,
       current_setting('max_replication_slots')::int as slots, current_setting('max_wal_senders')::int as senders,
       (select count(*) from pg_replication_slots) as slots_used,
       (select count(*) from pg_stat_replication) as senders_used,
       (select count(*) from unnest(%(slots)s::text[]) w
        where w not in (select slot_name from pg_replication_slots)) as slots_missing,
       (select rolreplication or rolsuper from pg_roles where rolname = current_user) as may_replicate
"""

_SLOTS = """
select slot_name, active, coalesce(wal_status, 'unknown') as wal_status,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint as retained_bytes
from pg_replication_slots where slot_type = 'logical' and slot_name <> all (%(slots)s::text[]) order by slot_name
"""

# By oid: names of a schema that the role may not use would be an error.
_UNREADABLE = """
select p.pubname as publication, t.schemaname as schema_name, t.tablename as table_name,
       has_schema_privilege(n.oid, 'usage') as may_use_schema, has_table_privilege(c.oid, 'select') as may_select
from pg_publication p
join pg_publication_tables t using (pubname)
join pg_namespace n on n.nspname = t.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
where not (has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'))
order by 1, 2, 3
"""

_PUBLICATIONS = "select pubname, puballtables from pg_publication order by pubname"


def check_postgres(url: str, slots: Sequence[str] = ()) -> Iterator[Check]:
    """Connect and look; whatever is wrong is a failed check, not an exception.

    `slots` are those of the file's sources, whose publications and tables are looked at one by one elsewhere. Without
    any, all publications of the database are.
    """
    try:
        with connect(url, "headgate check") as connection:
            yield from _checks(connection, list(slots))
    except HeadgateError as error:
        yield _unreachable(error)
    except psycopg.Error as error:
        yield answered("postgres", error)


def check_connection(url: str) -> Iterator[Check]:
    """Of a server that changes are not read from: whether it answers, and its version."""
    try:
        with connect(url, "headgate check") as connection:
            database, role = connection.info.dbname, connection.info.user
            yield Check("postgres connection", Outcome.OK, f"database {database} as {role}")
            if connection.info.server_version < _OLDEST:
                found = f"version {connection.info.server_version // 10000}"
                yield Check("postgres version", Outcome.FAIL, found, "upgrade to 14 or newer")
    except HeadgateError as error:
        yield _unreachable(error)


def _unreachable(error: HeadgateError) -> Check:
    fix = "is the server running, and the address in [postgres] url right?"
    if error.kind is Kind.AUTH:
        fix = "correct the user and password in [postgres] url, or pg_hba.conf on the server"
    elif "database" in error.remedy:
        fix = "create the database, or correct its name in [postgres] url"
    return replace(failed("postgres connection", error), fix=fix)


def _checks(connection: psycopg.Connection[dict[str, object]], slots: list[str]) -> Iterator[Check]:
    row = connection.execute(_SETTINGS, {"slots": slots}).fetchone()
    assert row is not None
    role, database = str(row["role"]), str(row["database"])
    yield Check("postgres connection", Outcome.OK, f"database {database} as {role}")
    version = Outcome.OK if int(str(row["version_number"])) >= _OLDEST else Outcome.FAIL
    yield Check(
        "postgres version", version, str(row["version"]), "" if version is Outcome.OK else "upgrade to 14 or newer"
    )
    if row["is_standby"]:
        fix = "name the primary in the address, or several servers with target_session_attrs=primary"
        yield Check("postgres role", Outcome.FAIL, "a standby, which cannot feed change data capture", fix)
        return
    logical = row["wal_level"] == "logical"
    yield Check(
        "wal_level",
        Outcome.OK if logical else Outcome.FAIL,
        str(row["wal_level"]),
        "" if logical else f"ALTER SYSTEM SET wal_level = 'logical'; -- {_RESTART}",
        None if logical else Kind.DEPENDENCY,
    )
    needed = int(str(row["slots_missing"])) if slots else 1
    yield _room("max_replication_slots", int(str(row["slots"])), int(str(row["slots_used"])), needed)
    yield _room("max_wal_senders", int(str(row["senders"])), int(str(row["senders_used"])))
    yield Check(
        "replication privilege",
        Outcome.OK if row["may_replicate"] else Outcome.FAIL,
        f"role {role} {'may' if row['may_replicate'] else 'may not'} replicate",
        "" if row["may_replicate"] else _quoted(connection, "ALTER ROLE {} REPLICATION;", role),
    )
    yield _keep_size(str(row["keep_size"]))
    if not slots:
        yield from _publications(connection)
    yield from _other_slots(connection, slots)


def _keep_size(limit: str) -> Check:
    if limit != "-1":
        return Check("max_slot_wal_keep_size", Outcome.OK, limit)
    fix = "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); -- what the disk can spare"
    return Check("max_slot_wal_keep_size", Outcome.WARN, "no limit: a slot that nobody reads fills the disk", fix)


def _room(setting: str, most: int, used: int, needed: int = 1) -> Check:
    if used + needed <= most:
        return Check(setting, Outcome.OK, f"{used} of {most} in use")
    fix = f"ALTER SYSTEM SET {setting} = {max(10, most * 2)}; -- {_RESTART}"
    return Check(setting, Outcome.FAIL, f"all {most} in use", fix)


def _publications(connection: psycopg.Connection[dict[str, object]]) -> Iterator[Check]:
    names = [str(row["pubname"]) for row in connection.execute(_PUBLICATIONS)]
    if names:
        yield Check("publications", Outcome.OK, ", ".join(names))
    else:
        fix = "CREATE PUBLICATION headgate FOR TABLE your_table; -- needed for change data capture only"
        yield Check("publications", Outcome.WARN, "none", fix)
    for row in connection.execute(_UNREADABLE):
        schema, table = str(row["schema_name"]), str(row["table_name"])
        missing = [] if row["may_use_schema"] else [f"USAGE on schema {schema}"]
        missing += [] if row["may_select"] else [f"SELECT on {schema}.{table}"]
        found = f"no {' and no '.join(missing)} (publication {row['publication']})"
        fix = "" if row["may_use_schema"] else _grant(connection, "USAGE ON SCHEMA", schema) + " "
        fix += "" if row["may_select"] else _grant(connection, "SELECT ON", schema, table)
        yield Check("table privilege", Outcome.FAIL, found, fix.strip())


def _other_slots(connection: psycopg.Connection[dict[str, object]], known: list[str]) -> Iterator[Check]:
    """Slots that no source of the file has: they, too, keep WAL."""
    for row in connection.execute(_SLOTS, {"slots": known}):
        name, retained = str(row["slot_name"]), int(str(row["retained_bytes"]))
        subject = f"slot {name}"
        found = f"{'active' if row['active'] else 'inactive'}, retains {retained / 1e6:,.1f} MB of WAL"
        drop = f"SELECT pg_drop_replication_slot({_literal(name)}); -- only if nothing uses it"
        if row["wal_status"] == "lost":
            yield Check(subject, Outcome.WARN, "lost: its WAL is gone", drop)
        elif not row["active"] and retained > _RETAINED_WARNING_BYTES:
            yield Check(subject, Outcome.WARN, found, drop)
        else:
            yield Check(subject, Outcome.OK, found)


def _grant(connection: psycopg.Connection[dict[str, object]], what: LiteralString, *names: str) -> str:
    role = sql.Identifier(connection.info.user)
    statement = sql.SQL("GRANT {} {} TO {};").format(sql.SQL(what), sql.Identifier(*names), role)
    return statement.as_string(connection)


def _quoted(connection: psycopg.Connection[dict[str, object]], statement: str, name: str) -> str:
    return statement.format(sql.Identifier(name).as_string(connection))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
