"""What a workload works in: tables in two schemas, their publication, and the role of a bridge.

The schemas are `{name}` and `{name}.Odd Two`. Joined by a dot, the table `Odd Two.account` of the first and `account`
of the second have the same name; only a bridge that escapes names keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.cdc import tables
from tests.cdc.tables import Table

__all__ = ["Connection", "Shop", "raw"]

Connection: TypeAlias = psycopg.Connection[Any]

_PASSWORD = "reader"  # of a role that lives as long as a test, on loopback


def raw(text: str) -> sql.SQL:
    """SQL that was put together from our own constants."""
    return sql.SQL(text)


@dataclass(frozen=True)
class Shop:
    """All tables of one workload below the schema `name`, their publication, and a role that may only read them."""

    name: str

    @property
    def odd_schema(self) -> str:
        """The second schema."""
        return f"{self.name}.Odd Two"

    @property
    def publication(self) -> str:
        """Its name, which needs quotes."""
        return f"{self.name} published"

    @property
    def reader(self) -> str:
        """The role for the bridge: LOGIN, REPLICATION and SELECT on these tables, nothing else."""
        return f"{self.name}_reader"

    @cached_property
    def ledger(self) -> Table:
        """One row for each committed transaction, its first and its last change."""
        return tables.ledger(self.name)

    @cached_property
    def bulk(self) -> Table:
        """The table that whole batches are copied into."""
        return tables.bulk(self.name)

    @cached_property
    def account(self) -> Table:
        """The table that others refer to."""
        return tables.account(self.name)

    @cached_property
    def everyday(self) -> tuple[Table, ...]:
        """The tables of which single rows are changed."""
        plain = [make(self.name) for make in (tables.entry, tables.document, tables.sample, tables.dotted)]
        odd = [make(self.odd_schema) for make in (tables.odd, tables.full, tables.measure)]
        return (self.account, *plain, *odd)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """All of them; parents before children."""
        return (self.ledger, self.bulk, *self.everyday)

    def create(self, connection: Connection) -> None:
        """Make schemas, types and tables. Needs the rights of a superuser, as do the other statements here."""
        with connection.transaction():
            for statement in self._definitions():
                connection.execute(statement)

    def publish(self, connection: Connection, *, via_root: bool = True) -> None:
        """Publish every table, a partitioned one under its own name or under those of its partitions."""
        names = sql.SQL(", ").join(table.identifier for table in self.tables)
        root = sql.SQL("true" if via_root else "false")
        query = sql.SQL("create publication {} for table {} with (publish_via_partition_root = {})")
        connection.execute(query.format(sql.Identifier(self.publication), names, root))

    def grant(self, connection: Connection) -> None:
        """Make the role for the bridge. It may read tables that are added later, too."""
        texts = (
            "create role {role} login replication password {password}",
            "grant usage on schema {schemas} to {role}",
            "grant select on all tables in schema {schemas} to {role}",
            "alter default privileges in schema {schemas} grant select on tables to {role}",
        )
        names = {"role": sql.Identifier(self.reader), "password": sql.Literal(_PASSWORD), "schemas": self._schemas()}
        with connection.transaction():
            for text in texts:
                connection.execute(sql.SQL(text).format(**names))

    def reader_url(self, url: str, port: int | None = None) -> str:
        """A URL over TCP for that role: to the server of `url`, or to a proxy's port on loopback."""
        server = conninfo_to_dict(url)
        place = f"127.0.0.1:{port or server['port']}"
        return f"postgresql://{quote(self.reader)}:{_PASSWORD}@{place}/{quote(str(server['dbname']))}"

    def drop(self, connection: Connection) -> None:
        """Remove all of it. What was never made does not matter."""
        publication, role = sql.Identifier(self.publication), sql.Identifier(self.reader)
        connection.execute(sql.SQL("drop publication if exists {}").format(publication))
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(self._schemas()))
        connection.execute(sql.SQL("drop role if exists {}").format(role))

    def _schemas(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, (self.name, self.odd_schema)))

    def _definitions(self) -> list[sql.Composed]:
        base = (
            "create schema {base}",
            "create schema {odd}",
            "create type {base}.mood as enum ('sad', 'ok', 'it''s \"fine\"')",
            "create domain {base}.score as smallint check (value between 0 and 100)",
            "create type {base}.place as (floor int, name text)",
        )
        made = [self.fill(text) for text in base]
        for table in self.tables:
            made += [self._definition(table), *(self.fill(text, table) for text in table.afterwards)]
        return made

    def _definition(self, table: Table) -> sql.Composed:
        parts: list[sql.Composable] = [
            sql.SQL("{} {}").format(sql.Identifier(column.name), self.fill(column.definition, table))
            for column in table.columns
        ]
        if table.key and not any("primary key" in column.definition for column in table.columns):
            parts.append(sql.SQL("primary key ({})").format(sql.SQL(", ").join(map(sql.Identifier, table.key))))
        query = sql.SQL("create table {} ({}) {}")
        return query.format(table.identifier, sql.SQL(", ").join(parts), raw(table.options))

    def fill(self, text: str, table: Table | None = None) -> sql.Composed:
        """SQL with the names `{base}`, `{odd}` and `{this}` in it."""
        this = (table or self.ledger).identifier
        return raw(text).format(base=sql.Identifier(self.name), odd=sql.Identifier(self.odd_schema), this=this)
