"""What the reader knows of the source's catalog: shapes of tables, types, and which tables are published.

One connection asks for one thing at a time, by its oid, so that the ten-thousandth table costs what the first one did.
Now and then it looks around for what no row has told yet: tables that came or went, types that were altered.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg

from headgate.kernels.frames import SchemaFrame, TypesFrame
from headgate.model import ConnectError, HeadgateError
from headgate.postgres import Connection, connect, postgres_error
from headgate.postgres.catalog import FIRST_CUSTOM_TYPE, load_types
from headgate.postgres.describe import (
    Description,
    Published,
    describe_published,
    describe_relations,
    published_tables,
)
from headgate.postgres.slot import mark_gap
from headgate.sources.postgres_cdc.schemas import SchemaBook
from headgate.sources.postgres_cdc.spool import Transaction
from headgate.sources.postgres_cdc.type_book import TypeBook
from headgate.wire.pgoutput import Relation, parse_lsn
from headgate.wire.pgtypes import TypeInfo

__all__ = ["DDL_PREFIX", "Catalog", "Knowledge"]

DDL_PREFIX = "headgate.ddl"  # of the logical message that the optional event trigger writes

logger = logging.getLogger(__name__)
T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_LOOK_S = 1.0
_LOOK_SHARE = 50  # looking around takes no more than one part in so many of the time


class Catalog:
    """An ordinary connection that stays open, and is made anew when it broke."""

    def __init__(self, url: str, publications: Sequence[str]) -> None:
        self._url = url
        self.publications = list(publications)
        self._connection: Connection | None = None

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Twice, if need be: an idle connection may have been cut long ago."""
        try:
            return question(self._opened())
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.close()
        try:
            return question(self._opened())
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise postgres_error(error, "postgres") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._url)
        return self._connection


class _Ddl(msgspec.Struct):
    """The event trigger's note: what was altered, as it was right then. An older trigger names the command alone."""

    relations: list[int] | None = None
    types: list[TypeInfo] = []


class Knowledge:
    """Owned by the reader, as are its books."""

    def __init__(self, directory: Path, catalog: Catalog) -> None:
        self._catalog = catalog
        self._schemas = SchemaBook(directory, lambda each: catalog.ask(lambda c: describe_relations(c, each)))
        self._types = TypeBook(directory)
        self._used: set[int] = set()  # custom types of columns
        self._mark: object = None
        self._look_at = 0.0

    def open(self, start_lsn: int, forked_at: int | None = None) -> None:
        """At each connect, before the stream begins behind that point.

        `forked_at` is where the server's timeline left the one that was read before, if it is another one.
        """
        if forked_at is not None:
            self._types.forget_after(forked_at)
            self._schemas.forget_after(forked_at)
        published = self._published()
        if published is None:
            raise ConnectError("a publication has just been dropped", where="postgres", remedy="trying again")
        self._types.begin(start_lsn)
        self._tell_gap(self._schemas.open(published, self._describe))
        if not self._catalog.ask(_tells_of_types):
            # What was altered while nobody looked: the stream does not say where.
            self._types.add(start_lsn, self._catalog.ask(lambda each: load_types(each, self._used)))
        self.sync()

    def head(self, transaction: Transaction, relations: Sequence[Relation], ddl: Sequence[bytes]) -> bytes:
        """What must stand in the spool before the transaction, for whoever reads it."""
        lsn = transaction.commit_lsn
        notes = [_note(content) for content in ddl]
        self._learn({column.type_id for each in relations for column in each.columns})
        for note in notes:
            self._types.add(lsn, [info for info in note.types if self._types.knows(info.oid)])
        frames: list[bytes] = []
        if lsn >= self._types.next_lsn and (types := self._types.due(lsn)):
            frames.append(TypesFrame(types).encode())
        if relations or notes:
            place = (lsn, transaction.commit_time_us, transaction.xid)
            told = self._schemas.announce(lsn, relations, ddl=(lambda: self._altered(notes)) if notes else None)
            frames += [SchemaFrame(*place, number, each).encode() for number, each in enumerate(told)]
        return b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames)

    def look(self) -> None:
        """Called often; looks into the catalog once a second, or less often where that takes long."""
        began = time.monotonic()
        if began < self._look_at:
            return
        try:
            self._look()
        except HeadgateError as error:
            logger.info("the catalog cannot be looked into now: %s", error)
        now = time.monotonic()
        self._look_at = now + max(_LOOK_S, _LOOK_SHARE * (now - began))

    def sync(self) -> None:
        """Have on disk what was learned, before anybody sees rows that need it."""
        self._types.sync()
        self._schemas.sync()

    def close(self) -> None:
        self._types.close()
        self._schemas.close()
        self._catalog.close()

    def _look(self) -> None:
        seen = self._catalog.ask(self._seen)
        altered = False
        if self._used:
            found = self._catalog.ask(lambda each: load_types(each, self._used))
            altered = self._types.add(parse_lsn(seen["lsn"]), found)
        if altered or seen["mark"] != self._mark:
            published = self._published()
            if published is not None:
                self._tell_gap(self._schemas.compare(published, self._describe, all_anew=altered))
                self._mark = seen["mark"]
        self.sync()

    def _published(self) -> list[Published] | None:
        """The published tables; None if a publication is missing, which takes no table away.

        It is looked for afterwards: one that was there before the tables were asked for may be gone by then.
        """
        tables = self._catalog.ask(lambda each: published_tables(each, self._catalog.publications))
        seen = self._catalog.ask(self._seen)
        return tables if seen["publication_count"] == len(self._catalog.publications) else None

    def _seen(self, connection: Connection) -> dict[str, Any]:
        query = resources.files("headgate.sources.postgres_cdc").joinpath("looking.sql").read_text()
        if connection.info.server_version < 150000:
            query = query.replace("pg_catalog.pg_publication_namespace", "(select 0 as oid, 0 as xmin where false)")
        row = connection.execute(query.encode(), {"publications": self._catalog.publications}).fetchone()
        assert row is not None
        return row

    def _describe(self, tables: list[Published]) -> list[Description]:
        found = self._catalog.ask(lambda each: describe_published(each, tables))
        self._learn({column["type_oid"] for each in found for column in each["columns"]})
        return found

    def _altered(self, notes: Sequence[_Ddl]) -> list[Description]:
        """Shapes of the published tables that were altered; of all, if nobody says which.

        A table that is new is told with its first row: whoever makes thousands of them should not wait for this.
        """
        named = [note.relations for note in notes if note.relations is not None]
        wanted = {number for numbers in named for number in numbers if self._schemas.knows(number)}
        if len(named) == len(notes) and not wanted:
            return []
        published = self._catalog.ask(lambda each: published_tables(each, self._catalog.publications))
        if len(named) == len(notes):
            published = [each for each in published if each.relation_id in wanted]
        return self._describe(published)

    def _learn(self, types: set[int]) -> None:
        """Types that a column shows for the first time."""
        new = {each for each in types if each >= FIRST_CUSTOM_TYPE} - self._used
        self._used |= new
        if unknown := {each for each in new if not self._types.knows(each)}:
            found = self._catalog.ask(lambda each: load_types(each, unknown))
            self._types.add(0, [info for info in found if not self._types.knows(info.oid)])

    def _tell_gap(self, tables: list[tuple[str, str]]) -> None:
        """Some of these tables' changes were never sent: whoever keeps a copy must begin it anew."""
        if not tables:
            return
        self._catalog.ask(lambda each: mark_gap(each, "publication", tables))


def _tells_of_types(connection: Connection) -> bool:
    """Whether the event trigger is there that writes altered types into the stream."""
    query = (
        "select 1 from pg_catalog.pg_event_trigger t join pg_catalog.pg_proc p on p.oid = t.evtfoid"
        " where p.proname = 'altered_v2' and t.evtname = 'headgate_ddl' and t.evtenabled in ('O', 'A')"
    )
    return connection.execute(query).fetchone() is not None


def _note(content: bytes) -> _Ddl:
    try:
        return msgspec.json.decode(content, type=_Ddl)
    except msgspec.MsgspecError:
        return _Ddl()
