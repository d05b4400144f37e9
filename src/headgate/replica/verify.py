"""Compares a replica with its source, while both go on changing.

Rows are compared as the bytes they have on the wire. Each side is added up over ranges of the key's hash; only ranges
that differ are looked into key by key. The source is read first, and the replica after it has applied everything that
was committed by then, so what still differs either has changed meanwhile or is wrong: it is wrong when it differs in
the same way twice. A row that is deleted and made again, exactly as it was, many times a second can be taken for wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
import psycopg

from headgate.consume import Schema, TableName
from headgate.model import AuthError, ConnectError, StateError
from headgate.postgres import connect, open_connection
from headgate.postgres.catalog import load_types
from headgate.replica.fold import Row
from headgate.replica.target import Target, dotted, quoted
from headgate.replica.values import comparable
from headgate.wire.pgoutput import parse_lsn
from headgate.wire.pgtypes import SESSION, TypeCatalog

__all__ = ["Applied", "Difference", "Source", "TableReport", "verify"]

_NAME = "headgate verify"
_RANGES = 1024
_ROUNDS = 6
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same: `missing` in the replica, `extra` in it, or `different`."""

    key: Row
    kind: str


@dataclass
class TableReport:
    """What came of one table. `busy` are keys that changed all the time, of which nothing can be said."""

    table: TableName
    row_count: int = 0
    differences: list[Difference] = field(default_factory=list)
    busy: list[Row] = field(default_factory=list)
    problem: str = ""  # why the table cannot be compared
    is_gone: bool = False  # it is kept although the source has it no more

    @property
    def is_exact(self) -> bool:
        return not self.differences and not self.busy and not self.problem

    @property
    def can_mend(self) -> bool:
        """Whether a new copy may help."""
        return bool(self.differences or self.problem)


class Source:
    """The origin of a replica. The role needs SELECT on the columns that are published.

    Where publications have different row filters for a table, `publications` says which are the bridge's.
    """

    def __init__(self, url: str, slot: str | None = None, publications: Sequence[str] | None = None) -> None:
        try:
            self._connection = open_connection(url, _NAME, SESSION)
        except psycopg.OperationalError as error:
            raise ConnectError(
                f"cannot reach the source: {str(error).splitlines()[0]}", where="--source", remedy="check its URL"
            ) from None
        self._url = url
        self._types: dict[tuple[int, ...], TypeCatalog] = {}
        self._publications = None if publications is None else list(publications)
        self._slot = slot

    def close(self) -> None:
        self._connection.close()

    def rows(self, schema: Schema) -> Iterator[Row]:
        """All of a table, as values of the wire."""
        names = ", ".join(quoted(column.name) for column in schema.sent)
        sql = f"copy (select {names} from {dotted((schema.schema, schema.table))}{self._filter(schema)}) to stdout"
        types = self._types_of(schema)
        decoders = [types.codec(column.type_oid).decode for column in schema.sent]
        same = comparable(schema)
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in copy.rows():
                yield same(tuple(None if v is None else d(v) for d, v in zip(decoders, row, strict=True)))

    def _types_of(self, schema: Schema) -> TypeCatalog:
        oids = tuple(sorted({column.type_oid for column in schema.sent}))
        if oids not in self._types:
            with connect(self._url, _NAME) as connection:
                self._types[oids] = TypeCatalog(load_types(connection, oids))
        return self._types[oids]

    def _filter(self, schema: Schema) -> str:
        """The rows that are published. PostgreSQL made this text of its own catalog."""
        query = (
            "select distinct to_jsonb(t) ->> 'rowfilter' from pg_catalog.pg_publication_tables t"
            " where t.schemaname = %s and t.tablename = %s and (%s::text[] is null or t.pubname = any (%s::text[]))"
        )
        values = [schema.schema, schema.table, self._publications, self._publications]
        filters = [row[0] for row in self._connection.execute(query, values)]
        if len(filters) > 1 and self._publications is None:
            raise StateError(
                "publications have different row filters for it",
                where=str(schema.name),
                remedy="name the bridge's with --publication",
            )
        if not filters or None in filters:
            return ""
        return f" where {' or '.join(f'({each})' for each in sorted(filters))}"

    def lsn(self) -> int:
        """Whatever can be seen now was committed before this point."""
        return self._lsn("select pg_current_wal_insert_lsn()::text")

    def delivered(self) -> int | None:
        """Everything before this point is in the stream, as its slot says; None if there is no slot."""
        query = (
            "select min(confirmed_flush_lsn)::text from pg_replication_slots"
            " where database = current_database() and plugin = 'pgoutput' and not temporary"
            " and slot_name = coalesce(%s, slot_name)"
        )
        row = self._connection.execute(query, [self._slot]).fetchone()
        return parse_lsn(row[0]) if row and row[0] else None

    def _lsn(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return parse_lsn(row[0])


Applied = Callable[[], Any]  # gives an awaitable: whether the replica has applied all that is in the stream


async def verify(
    source: Source, target: Target, applied: Applied, *, wait_s: float = 60.0, max_keys: int = 10_000
) -> list[TableReport]:
    """One report for each table that the target has. `applied` says whether all that the stream has is in it."""
    _, schemas = target.load()
    if not schemas:
        raise StateError("the target holds no replica", where="target", remedy="run: headgate replica run")
    check = _Check(source, target, applied, wait_s, max_keys)
    gone, aside = target.gone(), target.aside()
    reports = [TableReport(name, is_gone=True) for name in schemas if name in gone]
    reports += [TableReport(name, problem=f"it is set aside: {reason}") for name, reason in aside.items()]
    known = {report.table for report in reports}
    reports += [await check.reported(schema) for name, schema in sorted(schemas.items()) if name not in known]
    return sorted(reports, key=lambda report: report.table)


@dataclass
class _Check:
    source: Source
    target: Target
    applied: Applied
    wait_s: float
    max_keys: int

    async def reported(self, schema: Schema) -> TableReport:
        """A table that one side has no more, or in another shape, is told like one that differs."""
        if not self.target.exists(self.target.place(schema.name)):
            return TableReport(schema.name, problem="the target has it no more")
        try:
            return await self.table(schema)
        except psycopg.errors.InsufficientPrivilege as error:
            names = ", ".join(quoted(column.name) for column in schema.sent)
            raise AuthError(
                f"the source may not be read: {error.diag.message_primary}",
                where=str(schema.name),
                remedy=f"GRANT SELECT ({names}) ON {dotted((schema.schema, schema.table))} TO that role;",
            ) from None
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return TableReport(schema.name, problem="there is no such table any more")
        except psycopg.errors.UndefinedColumn:
            return TableReport(schema.name, problem="its columns are others")
        except (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter):
            return TableReport(schema.name, problem="the source has text that is no UTF-8, which events do not carry")
        except self.target.data_errors as error:
            return TableReport(schema.name, problem=f"the copy cannot be read ({type(error).__name__})")

    async def table(self, schema: Schema) -> TableReport:
        report = TableReport(schema.name)
        ranges = await self._differing_ranges(schema, report)
        before: dict[Row, tuple[int, int]] = {}
        for _ in range(_ROUNDS):
            if not ranges:
                return report
            found = await self._differing_keys(schema, ranges)
            same = {key: pair for key, pair in found.items() if before.get(key) == pair}
            if len(same) == len(found):
                report.differences = [Difference(key, _kind(*pair)) for key, pair in sorted(same.items(), key=str)]
                return report
            before = found
        report.differences = [Difference(key, _kind(*pair)) for key, pair in sorted(same.items(), key=str)]
        report.busy = [key for key in found if key not in same]
        return report

    async def _differing_ranges(self, schema: Schema, report: TableReport) -> set[int]:
        ours, count = await asyncio.to_thread(_sums, schema, self.source.rows(schema))
        await self._catch_up()
        theirs, _ = await asyncio.to_thread(_sums, schema, self.target.rows(schema))
        report.row_count = count
        return {number for number in range(_RANGES) if ours[number] != theirs[number]}

    async def _differing_keys(self, schema: Schema, ranges: set[int]) -> dict[Row, tuple[int, int]]:
        """Keys in these ranges whose rows differ, with both sums; 0 where there is no row."""
        ours = await asyncio.to_thread(_keys, schema, self.source.rows(schema), ranges)
        await self._catch_up()
        theirs = await asyncio.to_thread(_keys, schema, self.target.rows(schema), ranges)
        pairs = {key: (ours.get(key, 0), theirs.get(key, 0)) for key in ours.keys() | theirs.keys()}
        different = [(key, pair) for key, pair in pairs.items() if pair[0] != pair[1]]
        return dict(sorted(different, key=str)[: self.max_keys])  # the same ones in each round

    async def _catch_up(self) -> None:
        """Until everything that the source had is in the replica."""
        lsn, deadline = self.source.lsn(), time.monotonic() + self.wait_s
        while True:
            delivered = self.source.delivered()
            if (delivered is None or delivered >= lsn) and await self.applied():
                return
            if time.monotonic() > deadline:
                raise StateError(
                    "the replica does not come to where the source is",
                    where="target",
                    remedy="do the bridge and `headgate replica run` run? --catch-up applies what the stream has",
                )
            await asyncio.sleep(0.05)


def _hashes(schema: Schema, rows: Iterable[Row]) -> Iterator[tuple[Row, int, int]]:
    """Of each row its key, the range its key is in, and the hash of all of it."""
    names = [column.name for column in schema.sent]
    places = [names.index(name) for name in schema.row_key] or list(range(len(names)))
    pack = msgspec.msgpack.encode
    for row in rows:
        key = tuple(row[place] for place in places)
        place = int.from_bytes(blake2b(pack(key), digest_size=8).digest(), "big")
        yield key, place % _RANGES, int.from_bytes(blake2b(pack(row), digest_size=8).digest(), "big") | 1


def _sums(schema: Schema, rows: Iterable[Row]) -> tuple[list[int], int]:
    sums, count = [0] * _RANGES, 0
    for _, number, hashed in _hashes(schema, rows):
        sums[number] = (sums[number] + hashed) % _MODULUS
        count += 1
    return sums, count


def _keys(schema: Schema, rows: Iterable[Row], ranges: set[int]) -> dict[Row, int]:
    """Without a key equal rows are added up, so that their number counts."""
    found: dict[Any, int] = {}
    for key, number, hashed in _hashes(schema, rows):
        if number in ranges:
            name = tuple(str(part) if isinstance(part, list | dict) else part for part in key)
            found[name] = (found.get(name, 0) + hashed) % _MODULUS
    return found


def _kind(ours: int, theirs: int) -> str:
    return "missing" if not theirs else "extra" if not ours else "different"
