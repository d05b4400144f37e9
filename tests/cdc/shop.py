"""The tables that a workload works in: everything about tables that change data capture may stumble over.

Two schemas, `{name}` and `{name}.Odd Two`. Joined by a dot, the table `Odd Two.account` of the first and `account` of
the second have the same name; only a bridge that escapes names keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, LiteralString, TypeAlias, cast
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.cdc import values
from tests.cdc.values import Maker, nullable

__all__ = ["Column", "Connection", "Shop", "Table", "raw"]

Connection: TypeAlias = psycopg.Connection[Any]

_PASSWORD = "reader"  # of a role that lives as long as a test, on loopback
_REGIONS = ("north", "south", "east", "it's")


def raw(text: str) -> sql.SQL:
    """SQL that was put together from our own constants."""
    return sql.SQL(cast("LiteralString", text))


@dataclass(frozen=True, slots=True)
class Column:
    """`make` gives its values; None for a column that the server fills. `expression` is what stands for a value."""

    name: str
    definition: str
    make: Maker | None
    expression: str = "%s"


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the columns that identify a row in it; none: the whole row does (REPLICA IDENTITY FULL).

    `{this}` in `afterwards` is the table, `{base}` everywhere the first schema.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    options: str = ""
    afterwards: tuple[str, ...] = ()

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that a client gives values for."""
        return tuple(column for column in self.columns if column.make is not None)

    @property
    def payload(self) -> tuple[Column, ...]:
        """Those of them that do not identify the row."""
        return tuple(column for column in self.written if column.name not in self.key)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name in self.key)


@dataclass(frozen=True)
class Shop:
    """All tables of one workload below the schema `name`, their publication, and a role that may only read them."""

    name: str

    @property
    def odd_schema(self) -> str:
        return f"{self.name}.Odd Two"

    @property
    def publication(self) -> str:
        return f"{self.name} published"

    @property
    def reader(self) -> str:
        """The role for the bridge: LOGIN, REPLICATION and SELECT on these tables, nothing else."""
        return f"{self.name}_reader"

    @cached_property
    def ledger(self) -> Table:
        """One row for each committed transaction, its first and its last change."""
        columns = (
            Column("worker", "int", None),
            Column("number", "int", None),
            Column("state", "text not null", None),
            Column("steps", "int not null", None),
        )
        return Table(self.name, "ledger", columns, ("worker", "number"))

    @cached_property
    def bulk(self) -> Table:
        """The table that whole batches are copied into."""
        columns = (
            Column("batch", "bigint", None),
            Column("n", "int", None),
            Column("price", "numeric(12,2)", values.whole(0, 10**6)),
            Column("label", "text", nullable(values.word)),
            Column("total", "numeric generated always as (price * 2) stored", None),
        )
        return Table(self.name, "bulk", columns, ("batch", "n"))

    @cached_property
    def account(self) -> Table:
        """The parent of `entry`: its deletes, key changes and truncates cascade."""
        columns = (
            Column("id", "bigint", values.whole(1, 200)),
            Column("owner", "text", nullable(values.word)),
            Column("balance", "numeric", nullable(values.numeric)),
            Column("opened", "timestamptz", nullable(values.timestamptz)),
            Column("active", "boolean not null default true", values.boolean),
        )
        return Table(self.name, "account", columns, ("id",))

    @cached_property
    def everyday(self) -> tuple[Table, ...]:
        """The tables of which single rows are changed."""
        return (
            self.account,
            self._entry,
            self._document,
            self._sample,
            self._odd,
            self._dotted,
            self._full,
            self._measure,
        )

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """All of them; parents before children."""
        return (self.ledger, self.bulk, *self.everyday)

    @property
    def truncatable(self) -> tuple[Table, ...]:
        """Those that a workload may empty; `account` takes `entry` with it."""
        return tuple(table for table in self.tables if table is not self.ledger)

    @property
    def _entry(self) -> Table:
        existing = "(select id from {base}.account where id >= %s order by id limit 1)"
        reference = "bigint references {base}.account on update cascade on delete cascade"
        columns = (
            Column("id", "int", values.whole(1, 300)),
            Column("account_id", reference, values.whole(1, 200), existing),
            Column("amount", "numeric(20,4)", values.whole(-1000, 1000)),
        )
        return Table(self.name, "entry", columns, ("id",))

    @property
    def _document(self) -> Table:
        """Large values out of line, which an UPDATE of other columns does not send."""
        columns = (
            Column("id", "int", values.whole(1, 60)),
            Column("title", "text", nullable(values.word)),
            Column("body", "text", nullable(values.large_text)),
            Column("views", "int", values.whole(0, 99)),
            Column("scan", "bytea", nullable(values.large_bytes)),
        )
        external = "alter table {this} alter body set storage external, alter scan set storage external"
        return Table(self.name, "document", columns, ("id",), afterwards=(external,))

    @property
    def _sample(self) -> Table:
        """One column for each kind of type."""
        columns = (
            Column("id", "uuid", lambda rng: f"00000000-0000-4000-8000-{rng.randint(1, 80):012x}"),
            Column("price", "numeric", nullable(values.numeric)),
            Column("ratio", "float8", nullable(values.float8)),
            Column("doc", "json", nullable(values.json_text)),
            Column("docb", "jsonb", nullable(values.json_text)),
            Column("numbers", "int[]", nullable(values.int_array)),
            Column("labels", "text[]", nullable(values.text_array)),
            Column("raw", "bytea", nullable(values.bytea)),
            Column("at", "timestamptz", nullable(values.timestamptz)),
            Column("day", "date", nullable(values.date)),
            Column("span", "interval", nullable(values.interval)),
            Column("ok", "boolean", nullable(values.boolean)),
            Column("code", "char(4)", nullable(values.one_of("a", "ab", "abcd"))),
            Column("mood", "{base}.mood", nullable(values.one_of("sad", "ok", 'it\'s "fine"'))),
            Column("score", "{base}.score", nullable(values.whole(0, 100))),
            Column("place", "{base}.place", nullable(values.one_of('(1,"a, ""b""")', "(,)", '(2," ")'))),
            Column("net", "inet", nullable(values.one_of("192.168.1.5", "10.0.0.0/8", "::1"))),
        )
        return Table(self.name, "sample", columns, ("id",))

    @property
    def _odd(self) -> Table:
        columns = (
            Column("region", "text", values.one_of(*_REGIONS, "", "ü. x")),
            Column("no.", "int", values.whole(1, 30)),
            Column("select", "text", nullable(values.word)),
            Column('Mixed "Case"', "boolean", nullable(values.boolean)),
            Column("100%", "timestamp", nullable(values.date)),
        )
        return Table(self.odd_schema, "Odd Table", columns, ("region", "no."))

    @property
    def _dotted(self) -> Table:
        """Identified by a unique index that is not the primary key."""
        columns = (
            Column("id", "bigint generated always as identity primary key", None),
            Column("code", "text not null", lambda rng: f"code.{rng.randint(1, 100)}"),
            Column("value", "text", nullable(values.word)),
        )
        unique = "create unique index dotted_code on {this} (code)"
        identity = "alter table {this} replica identity using index dotted_code"
        return Table(self.name, "Odd Two.account", columns, ("code",), afterwards=(unique, identity))

    @property
    def _full(self) -> Table:
        """No key, the same row many times, and large values that an UPDATE sends in the old row only."""
        columns = (
            Column("grp", "int", values.whole(1, 3)),
            Column("word", "text", nullable(values.one_of("a", "b", ""))),
            Column("ratio", "float8", nullable(values.one_of("1", "-0", "NaN"))),
            Column("body", "text", nullable(values.large_text, 0.8)),
        )
        full = "alter table {this} replica identity full"
        external = "alter table {this} alter body set storage external"
        return Table(self.odd_schema, "account", columns, afterwards=(full, external))

    @property
    def _measure(self) -> Table:
        """Partitioned; changing the region moves a row from one partition to another."""
        columns = (
            Column("region", "text", values.one_of(*_REGIONS)),
            Column("id", "int", values.whole(1, 60)),
            Column("value", "float8", nullable(values.float8)),
            Column("note", "text", nullable(values.word)),
        )
        partitions = (
            "create table {odd}.measure_north partition of {this} for values in ('north')",
            "create table {odd}.\"measure south.east\" partition of {this} for values in ('south', 'east')",
            "create table {odd}.measure_rest partition of {this} default",
        )
        options = "partition by list (region)"
        return Table(self.odd_schema, "measure", columns, ("region", "id"), options=options, afterwards=partitions)

    def create(self, connection: Connection) -> None:
        """Make schemas, types and tables. Needs the rights of a superuser, as do the other statements here."""
        with connection.transaction():
            for statement in self._definitions():
                connection.execute(statement)

    def publish(self, connection: Connection, *, via_root: bool = True) -> None:
        """Publish every table, a partitioned one under its own name or under those of its partitions."""
        tables = sql.SQL(", ").join(table.identifier for table in self.tables)
        root = sql.SQL("true" if via_root else "false")
        query = sql.SQL("create publication {} for table {} with (publish_via_partition_root = {})")
        connection.execute(query.format(sql.Identifier(self.publication), tables, root))

    def grant(self, connection: Connection) -> None:
        """Make the role for the bridge."""
        role, schemas = sql.Identifier(self.reader), self._schemas()
        with connection.transaction():
            query = sql.SQL("create role {} login replication password {}")
            connection.execute(query.format(role, sql.Literal(_PASSWORD)))
            connection.execute(sql.SQL("grant usage on schema {} to {}").format(schemas, role))
            connection.execute(sql.SQL("grant select on all tables in schema {} to {}").format(schemas, role))

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

    def _definitions(self) -> list[sql.Composable]:
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
