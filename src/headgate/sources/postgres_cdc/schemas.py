"""The book of shapes: which shape of each table the stream has been told of, and from where on.

Whenever a transaction brings a shape that is not in force, its description goes into the spool before the transaction,
and an entry into this book. The book is on disk before the transaction can be seen, and survives the spool: a replay
finds the same entries, and so puts the same descriptions in the same places.

    <spool>/schemas.json    for each table its entries, and its description as of now
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from headgate.sources.postgres_cdc.describe import Description
from headgate.wire.envelope import schema_version
from headgate.wire.pgoutput import Relation, format_lsn

__all__ = ["DDL_PREFIX", "SchemaBook", "TableEntry", "book_stamp", "read_book"]

DDL_PREFIX = "headgate.ddl"  # of the logical message that the optional event trigger writes

_FILE = "schemas.json"
_MOST_ENTRIES = 50  # per table; a replay needs the newest alone


class Announced(msgspec.Struct, frozen=True):
    """A shape in force from a transaction on; 0 for what was there at the first start, which nobody is told again."""

    version: str
    lsn: int
    description: Description


class TableEntry(msgspec.Struct):
    """What is known of one table. `current` is None once it is published no more."""

    current: Description | None
    announced: list[Announced]

    def in_force(self, before_lsn: int) -> str | None:
        """The version of rows that come right before the LSN."""
        return next((entry.version for entry in reversed(self.announced) if entry.lsn < before_lsn), None)


class Book(msgspec.Struct):
    """The file's content, by relation id."""

    tables: dict[int, TableEntry]
    ddl_lsn: int = 0  # of the newest transaction with DDL that was looked into


def read_book(directory: Path) -> Book | None:
    """The book as it is on disk."""
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Book)
    except FileNotFoundError:
        return None


def book_stamp(directory: Path) -> object:
    """Something that differs whenever the file does; None while there is none."""
    try:
        status = (directory / _FILE).stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino


class SchemaBook:
    """Owned by the reader. `describe` asks the catalog for one relation, `describe_all` for everything published."""

    def __init__(
        self,
        directory: Path,
        describe: Callable[[Relation], Description],
        describe_all: Callable[[], list[Description]],
    ) -> None:
        self._directory = directory
        self._describe = describe
        self._describe_all = describe_all
        self._book = read_book(directory)

    def open(self) -> None:
        """At each start: note how the tables are now. The first time that is what the stream begins with."""
        is_first = self._book is None
        book = self._book = self._book or Book({})
        found = {each["relation_id"]: each for each in self._describe_all()}
        for relation_id, description in found.items():
            entry = book.tables.setdefault(relation_id, TableEntry(None, []))
            entry.current = description
            if is_first:
                entry.announced.append(Announced(description["version"], 0, description))
        for relation_id, entry in book.tables.items():
            if relation_id not in found:
                entry.current = None
        self._save()

    def announce(self, commit_lsn: int, relations: Sequence[Relation], *, ddl: bool) -> list[Description]:
        """What must be said before the transaction that commits there."""
        assert self._book is not None
        tables = sorted(self._book.tables.items())
        said = [entry.description for _, table in tables for entry in table.announced if entry.lsn == commit_lsn]
        if said:
            return said
        different = {
            schema_version(relation): relation
            for relation in relations
            if schema_version(relation) != self._in_force(relation.relation_id, commit_lsn)
        }
        new = [self._describe(relation) for relation in different.values()]
        if ddl and commit_lsn > self._book.ddl_lsn:
            self._book.ddl_lsn = commit_lsn
            seen = {each["version"] for each in new}
            now = [each for each in self._describe_all() if each["version"] not in seen]
            new += [each for each in now if self._differs(each, commit_lsn)]
        if new or ddl:
            new.sort(key=lambda each: int(each["relation_id"]))  # the order in which a replay finds them
            new = [self._enter({**each, "lsn": format_lsn(commit_lsn)}, commit_lsn) for each in new]
            self._save()
        return new

    def _in_force(self, relation_id: int, lsn: int) -> str | None:
        assert self._book is not None
        entry = self._book.tables.get(relation_id)
        return entry.in_force(lsn) if entry else None

    def _differs(self, description: Description, lsn: int) -> bool:
        return bool(description["version"] != self._in_force(description["relation_id"], lsn))

    def _enter(self, description: Description, lsn: int) -> Description:
        assert self._book is not None
        entry = self._book.tables.setdefault(description["relation_id"], TableEntry(None, []))
        entry.current = description
        entry.announced.append(Announced(description["version"], lsn, description))
        del entry.announced[:-_MOST_ENTRIES]
        return description

    def _save(self) -> None:
        temporary = self._directory / f".{_FILE}"
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(self._book))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._directory / _FILE)
