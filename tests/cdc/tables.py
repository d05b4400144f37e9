"""The tables of a shop: everything about tables that change data capture may stumble over.

Names in SQL texts are filled in by the shop: `{this}` is the table, `{base}` the first schema, `{odd}` the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from tests.cdc import values
from tests.cdc.values import Maker, nullable

__all__ = ["Column", "Table"]

_REGIONS = ("north", "south", "east", "it's")


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

    `options` follow its definition, `afterwards` are statements that complete it.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    options: str = ""
    afterwards: tuple[str, ...] = ()

    @property
    def identifier(self) -> sql.Identifier:
        """Its name as SQL."""
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
        """Those that identify it."""
        return tuple(column for column in self.columns if column.name in self.key)


def ledger(schema: str) -> Table:
    """One row for each committed transaction, its first and its last change."""
    columns = (
        Column("worker", "int", None),
        Column("number", "int", None),
        Column("state", "text not null", None),
        Column("steps", "int not null", None),
    )
    return Table(schema, "ledger", columns, ("worker", "number"))


def bulk(schema: str) -> Table:
    """The table that whole batches are copied into."""
    columns = (
        Column("batch", "bigint", None),
        Column("n", "int", None),
        Column("price", "numeric(12,2)", values.whole(0, 10**6)),
        Column("label", "text", nullable(values.word)),
        Column("total", "numeric generated always as (price * 2) stored", None),
    )
    return Table(schema, "bulk", columns, ("batch", "n"))


def account(schema: str) -> Table:
    """The parent of `entry`: its deletes, key changes and truncates cascade."""
    columns = (
        Column("id", "bigint", values.whole(1, 200)),
        Column("owner", "text", nullable(values.word)),
        Column("balance", "numeric", nullable(values.numeric)),
        Column("opened", "timestamptz", nullable(values.timestamptz)),
        Column("active", "boolean not null default true", values.boolean),
    )
    return Table(schema, "account", columns, ("id",))


def entry(schema: str) -> Table:
    """Its account is one that exists, if there is any."""
    existing = "(select id from {base}.account where id >= %s order by id limit 1)"
    reference = "bigint references {base}.account on update cascade on delete cascade"
    columns = (
        Column("id", "int", values.whole(1, 300)),
        Column("account_id", reference, values.whole(1, 200), existing),
        Column("amount", "numeric(20,4)", values.whole(-1000, 1000)),
    )
    return Table(schema, "entry", columns, ("id",))


def document(schema: str) -> Table:
    """Large values out of line, which an UPDATE of other columns does not send."""
    columns = (
        Column("id", "int", values.whole(1, 60)),
        Column("title", "text", nullable(values.word)),
        Column("body", "text", nullable(values.large_text)),
        Column("views", "int", values.whole(0, 99)),
        Column("scan", "bytea", nullable(values.large_bytes)),
    )
    external = "alter table {this} alter body set storage external, alter scan set storage external"
    return Table(schema, "document", columns, ("id",), afterwards=(external,))


def sample(schema: str) -> Table:
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
    return Table(schema, "sample", columns, ("id",))


def dotted(schema: str) -> Table:
    """Identified by a unique index that is not the primary key."""
    columns = (
        Column("id", "bigint generated always as identity primary key", None),
        Column("code", "text not null", lambda rng: f"code.{rng.randint(1, 100)}"),
        Column("value", "text", nullable(values.word)),
    )
    unique = "create unique index dotted_code on {this} (code)"
    identity = "alter table {this} replica identity using index dotted_code"
    return Table(schema, "Odd Two.account", columns, ("code",), afterwards=(unique, identity))


def odd(schema: str) -> Table:
    """Names that need quotes, and a key of two columns."""
    columns = (
        Column("region", "text", values.one_of(*_REGIONS, "", "ü. x")),
        Column("no.", "int", values.whole(1, 30)),
        Column("select", "text", nullable(values.word)),
        Column('Mixed "Case"', "boolean", nullable(values.boolean)),
        Column("100%", "timestamp", nullable(values.date)),
    )
    return Table(schema, "Odd Table", columns, ("region", "no."))


def full(schema: str) -> Table:
    """No key, the same row many times, and large values that an UPDATE sends in the old row only."""
    columns = (
        Column("grp", "int", values.whole(1, 3)),
        Column("word", "text", nullable(values.one_of("a", "b", ""))),
        Column("ratio", "float8", nullable(values.one_of("1", "-0", "NaN"))),
        Column("body", "text", nullable(values.large_text, 0.5)),
    )
    full = "alter table {this} replica identity full"
    external = "alter table {this} alter body set storage external"
    return Table(schema, "account", columns, afterwards=(full, external))


def measure(schema: str) -> Table:
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
    return Table(schema, "measure", columns, ("region", "id"), options=options, afterwards=partitions)
