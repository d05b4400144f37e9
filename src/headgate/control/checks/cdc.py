"""Is everything there that one `postgres-cdc` source of the file names: its publications, their tables, its slot?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from headgate.config.sources import PostgresCdcSourceSection
from headgate.control.checks.failover import check_failover
from headgate.control.checks.verdict import Check, Outcome, answered, failed
from headgate.model import HeadgateError, Kind
from headgate.postgres import connect
from headgate.postgres.replication import ReplicationConnection

__all__ = ["check_cdc"]

_RETAINED_WARNING_BYTES = 1 << 30
_MOST_TABLES_SHOWN = 20
_ROW_OPERATIONS = ("insert", "update", "delete")
_ALL_OPERATIONS = (*_ROW_OPERATIONS, "truncate")
_TABLES = resources.files(__package__).joinpath("cdc.sql").read_text()

_PUBLICATION = """
select puballtables as all_tables, pubviaroot as via_root, pubinsert as insert, pubupdate as update,
       pubdelete as delete, pubtruncate as truncate
from pg_catalog.pg_publication where pubname = %s
"""

_SLOT = """
select slot_type, coalesce(plugin, '') as plugin, database::text, active_pid, confirmed_flush_lsn::text as confirmed,
       coalesce(to_jsonb(s) ->> 'wal_status', 'unknown') as wal_status,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '') as invalidation_reason,
       (to_jsonb(s) ->> 'safe_wal_size')::bigint as safe_bytes,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint as retained_bytes
from pg_catalog.pg_replication_slots s where slot_name = %s
"""

Connection = psycopg.Connection[dict[str, Any]]


def check_cdc(section: PostgresCdcSourceSection, url: str) -> Iterator[Check]:
    """What the source needs, in the order in which it would be missed."""
    try:
        with connect(url, "headgate check") as connection:
            yield from _checks(connection, section, url)
    except HeadgateError as error:
        yield failed(f"slot {section.slot}", error)
    except psycopg.Error as error:
        yield answered(f"slot {section.slot}", error)


def _checks(connection: Connection, section: PostgresCdcSourceSection, url: str) -> Iterator[Check]:
    yield _stream(url, section.slot)
    names = tuple(name.strip() for name in section.publication.split(",") if name.strip())
    for name in names:
        has_rows_alone = section.format == "debezium" and section.debezium.unwrap
        yield from _publication(
            connection, name, section.tables, _ROW_OPERATIONS if has_rows_alone else _ALL_OPERATIONS
        )
        if has_rows_alone:
            yield from _rows_alone(connection, name)
    yield from _slot(connection, section.slot)
    if section.failover:
        yield from check_failover(connection, section.slot, url)


def _stream(url: str, slot: str) -> Check:
    """A real connection for replication: rights, pg_hba.conf and a free sender in one."""
    try:
        connection = ReplicationConnection(url, slot)
        try:
            identity = connection.identify()
        finally:
            connection.close()
    except HeadgateError as error:
        fix = error.remedy.removesuffix("; see: headgate check")
        return replace(failed("replication connection", error), fix=fix)
    found = f"system {identity.system_id}, timeline {identity.timeline}, database {identity.database}"
    return Check("replication connection", Outcome.OK, found)


def _publication(
    connection: Connection, name: str, wanted: tuple[str, ...], operations: tuple[str, ...]
) -> Iterator[Check]:
    subject = f"publication {name}"
    row = connection.execute(_PUBLICATION, [name]).fetchone()
    if row is None:
        yield _missing_publication(connection, name, wanted)
        return
    tables = connection.execute(_TABLES.encode(), {"publication": name}).fetchall()
    published = [operation for operation in _ALL_OPERATIONS if row[operation]]
    quoted = sql.Identifier(name).as_string(connection)
    if not tables:
        fix = f"ALTER PUBLICATION {quoted} ADD TABLE your_table;"
        yield Check(subject, Outcome.WARN, "has no tables", fix)
    elif not set(operations) <= set(published):
        fix = f"ALTER PUBLICATION {quoted} SET (publish = '{', '.join(operations)}');"
        yield Check(subject, Outcome.WARN, f"{len(tables)} tables, only {' and '.join(published)}", fix)
    else:
        yield Check(subject, Outcome.OK, f"{len(tables)} tables")
    if not row["via_root"] and any(table["is_partition"] for table in tables):
        fix = f"ALTER PUBLICATION {quoted} SET (publish_via_partition_root = true);"
        yield Check(subject, Outcome.WARN, "partitions are published as tables of their own", fix)
    if not row["all_tables"]:
        yield from _wanted_tables(connection, name, wanted, tables)
    yield from _tables(connection, tables, names_old_rows="update" in published or "delete" in published)


def _rows_alone(connection: Connection, name: str) -> Iterator[Check]:
    """What messages that are rows alone cannot tell: a TRUNCATE, and values that an update left as they were."""
    row = connection.execute(_PUBLICATION, [name]).fetchone()
    if row is None:
        return
    if row["truncate"]:
        fix = (
            f"ALTER PUBLICATION {sql.Identifier(name).as_string(connection)} SET (publish = 'insert, update, delete');"
        )
        found = "a TRUNCATE is not seen where a message is a row (unwrap): rows have to be deleted"
        yield Check(f"publication {name}", Outcome.WARN, found, f"{fix} -- and use DELETE")
    for table in connection.execute(_TABLES.encode(), {"publication": name}).fetchall()[:_MOST_TABLES_SHOWN]:
        short = f"{table['schema_name']}.{table['table_name']}"
        quoted = sql.Identifier(table["schema_name"], table["table_name"]).as_string(connection)
        if not table["has_primary_key"]:
            found = f"rows of {short} have none, so they cannot go to a compacted topic"
            yield Check("message key", Outcome.WARN, found, f"ALTER TABLE {quoted} ADD PRIMARY KEY (your_column);")
        elif table["may_lack_values"]:
            found = f"an update of {short} does not send large values that it leaves as they were"
            yield Check("replica identity", Outcome.WARN, found, f"ALTER TABLE {quoted} REPLICA IDENTITY FULL;")


def _missing_publication(connection: Connection, name: str, wanted: tuple[str, ...]) -> Check:
    """One that headgate may create, because the file names its tables, is missing only to those who may not."""
    target = "FOR ALL TABLES" if "*" in wanted else f"FOR TABLE {', '.join(map(_table, wanted)) or 'your_table'}"
    quoted = sql.Identifier(name).as_string(connection)
    statement = f"CREATE PUBLICATION {quoted} {target} WITH (publish_via_partition_root);"
    if not wanted:
        return Check(f"publication {name}", Outcome.FAIL, "there is none of this name", statement, Kind.STATE)
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("set local lock_timeout = '2s'")
            connection.execute(statement.encode())
    except psycopg.Error as error:
        found = f"there is none, and creating it was refused: {error.diag.message_primary or error}"
        fix = f"{statement} -- as the owner of the tables"
        may_not = isinstance(error, psycopg.errors.InsufficientPrivilege)
        return Check(f"publication {name}", Outcome.FAIL, found, fix, Kind.AUTH if may_not else None)
    return Check(f"publication {name}", Outcome.OK, f"there is none yet; it is created {target}")


def _wanted_tables(
    connection: Connection, name: str, wanted: tuple[str, ...], tables: list[dict[str, Any]]
) -> Iterator[Check]:
    """Tables that the file names and the publication does not have."""
    there = {(table["schema_name"], table["table_name"]) for table in tables}
    publication = sql.Identifier(name).as_string(connection)
    for table in wanted:
        schema, _, short = table.rpartition(".")
        if table == "*":
            fix = f"DROP PUBLICATION {publication}; CREATE PUBLICATION {publication} FOR ALL TABLES;"
            yield Check(f"publication {name}", Outcome.WARN, "is not for all tables", fix)
        elif (schema or "public", short) not in there:
            fix = f"ALTER PUBLICATION {publication} ADD TABLE {_table(table)};"
            yield Check(f"publication {name}", Outcome.FAIL, f"does not have the table {table}", fix)


def _tables(connection: Connection, tables: list[dict[str, Any]], *, names_old_rows: bool) -> Iterator[Check]:
    found = [check for table in tables for check in _table_checks(connection, table, names_old_rows)]
    yield from found[:_MOST_TABLES_SHOWN]
    if len(found) > _MOST_TABLES_SHOWN:
        rest = len(found) - _MOST_TABLES_SHOWN
        worst = Outcome.FAIL if any(check.outcome is Outcome.FAIL for check in found) else Outcome.WARN
        yield Check("tables", worst, f"{rest} more like these", "mend those first, then check again")


def _table_checks(connection: Connection, table: dict[str, Any], names_old_rows: bool) -> Iterator[Check]:
    schema, short = table["schema_name"], table["table_name"]
    name = sql.Identifier(schema, short).as_string(connection)
    role = sql.Identifier(connection.info.user).as_string(connection)
    if not table["may_use_schema"]:
        fix = f"GRANT USAGE ON SCHEMA {sql.Identifier(schema).as_string(connection)} TO {role};"
        yield Check("table privilege", Outcome.FAIL, f"no USAGE on schema {schema}", fix)
    unreadable = table["unreadable_columns"] or []
    if unreadable:
        columns = ", ".join(sql.Identifier(column).as_string(connection) for column in unreadable)
        what = f"SELECT ({columns})" if table["has_column_list"] else "SELECT"
        fix = f"GRANT {what} ON {name} TO {role};"
        yield Check("table privilege", Outcome.FAIL, f"no SELECT on {schema}.{short}", fix)
    if table["has_row_security"]:
        found = f"policies of {schema}.{short} hide rows from snapshots"
        yield Check("row security", Outcome.WARN, found, f"ALTER ROLE {role} BYPASSRLS;")
    if names_old_rows and table["has_no_identity"]:
        found = f"{schema}.{short} has neither a primary key nor another one: PostgreSQL refuses to update or delete"
        yield Check("replica identity", Outcome.WARN, found, f"ALTER TABLE {name} REPLICA IDENTITY FULL;")


def _slot(connection: Connection, name: str) -> Iterator[Check]:
    subject = f"slot {name}"
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        yield Check(subject, Outcome.OK, "there is none yet; it is created at the first start")
        return
    drop = f"SELECT pg_drop_replication_slot({sql.Literal(name).as_string(connection)});"
    database = connection.info.dbname
    lost = row["invalidation_reason"] or ("its WAL was removed" if row["wal_status"] == "lost" else "")
    if row["slot_type"] != "logical" or row["plugin"] != "pgoutput":
        found = f"is of kind {row['plugin'] or row['slot_type']}, not pgoutput"
        fix = f"choose another name for it; or if nothing uses it: {drop}"
        yield Check(subject, Outcome.FAIL, found, fix, Kind.STATE)
    elif row["database"] != database:
        found = f"belongs to the database {row['database']}, not {database}"
        fix = "choose another name for it, or correct the database in the address"
        yield Check(subject, Outcome.FAIL, found, fix, Kind.STATE)
    elif lost:
        fix = f"{drop} -- then headgate reset PIPELINE, and give consumers new snapshots"
        yield Check(subject, Outcome.FAIL, f"is lost ({lost})", fix)
    else:
        yield _usable_slot(subject, row)


def _usable_slot(subject: str, row: dict[str, Any]) -> Check:
    retained, safe = row["retained_bytes"], row["safe_bytes"]
    reader = f"read by process {row['active_pid']}" if row["active_pid"] else "nobody reads it"
    found = f"{reader}, confirmed {row['confirmed']}, retains {retained / 1e6:,.1f} MB of WAL"
    if safe is not None:
        found += f", {max(0, safe) / 1e6:,.1f} MB before it is lost"
    if row["wal_status"] == "unreserved" or (safe is not None and safe < retained):
        fix = "headgate run -- or raise max_slot_wal_keep_size: the slot is lost when it retains more"
        return Check(subject, Outcome.WARN, found, fix)
    if not row["active_pid"] and retained > _RETAINED_WARNING_BYTES:
        return Check(subject, Outcome.WARN, found, "headgate run -- nobody reads it, and the server's disk fills")
    return Check(subject, Outcome.OK, found)


def _table(name: str) -> str:
    return sql.Identifier(*name.split(".", 1)).as_string(None)
