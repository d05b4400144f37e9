"""The book of shapes: which shape of each table the stream has been told of, and from where on.

Whenever a transaction brings a shape that is not in force, its description goes into the spool before the transaction,
and an entry into this book. The book is on disk before the transaction can be seen, and survives the spool: a replay
finds the same entries, and so puts the same descriptions in the same places.

A table is a relation id. A name is told anew whenever another relation has it, though its shape may be the same.

    <spool>/schemas.log    a line for each change of a table's entry; the newest counts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from headgate.postgres.describe import Description, Published
from headgate.sources.postgres_cdc.journal import Journal, JournalReader, read_lines
from headgate.wire.envelope import schema_version
from headgate.wire.pgoutput import Relation, format_lsn

__all__ = ["BookReader", "SchemaBook", "TableEntry", "read_book"]

_FILE = "schemas.log"
_OLD_FILE = "schemas.json"  # of earlier versions: the whole book as one document
_MOST_ENTRIES = 50  # per table; a replay needs the newest alone
_COMPACT_BYTES = 64 << 20

Name = tuple[str, str]


class Announced(msgspec.Struct, frozen=True):
    """A shape in force from a transaction on; 0 for what was there at the first start, which nobody is told again."""

    version: str
    lsn: int
    description: Description


class TableEntry(msgspec.Struct):
    """What is known of one table. `current` is None while it is not published.

    `membership` and `shape` are marks of the catalog: by what it is published, and how it looks.
    """

    current: Description | None
    announced: list[Announced]
    membership: str = ""
    shape: str = ""

    def in_force(self, before_lsn: int) -> Announced | None:
        """The shape of rows that come right before the LSN."""
        return next((entry for entry in reversed(self.announced) if entry.lsn < before_lsn), None)


class Book(msgspec.Struct):
    """All of it, by relation id."""

    tables: dict[int, TableEntry]
    ddl_lsn: int = 0  # of the newest transaction with DDL that was looked into


class _Line(msgspec.Struct, omit_defaults=True):
    relation_id: int = 0
    entry: TableEntry | None = None
    ddl_lsn: int = 0

    def apply(self, book: Book) -> None:
        if self.entry is not None:
            book.tables[self.relation_id] = self.entry
        book.ddl_lsn = max(book.ddl_lsn, self.ddl_lsn)


def read_book(directory: Path) -> Book | None:
    """The book as it is on disk."""
    lines = read_lines(directory / _FILE)
    try:
        if not lines:
            return msgspec.json.decode((directory / _OLD_FILE).read_bytes(), type=Book)
    except FileNotFoundError:
        return None
    book = Book({})
    for line in lines:
        msgspec.json.decode(line, type=_Line).apply(book)
    return book


class BookReader:
    """Another process's view of the book: reads each entry once."""

    def __init__(self, directory: Path) -> None:
        self._reader = JournalReader(directory / _FILE)

    def changes(self) -> dict[int, TableEntry]:
        """The entries that are new or different since the last time."""
        _, lines = self._reader.read()
        book = Book({})
        for line in lines:
            msgspec.json.decode(line, type=_Line).apply(book)
        return book.tables


class SchemaBook:
    """Owned by the reader. `describe` asks the catalog for some relations as the stream shows them."""

    def __init__(self, directory: Path, describe: Callable[[Sequence[Relation]], list[Description]]) -> None:
        self._describe = describe
        self._journal = Journal(directory / _FILE)
        self._limit = 0  # bytes at which the journal is begun anew
        self._book = read_book(directory)
        self._names: dict[Name, list[tuple[int, int]]] = {}  # LSN and relation id of each announcement
        self._at: dict[int, set[int]] = {}  # the relations of which something is said at an LSN

    def forget_after(self, lsn: int) -> None:
        """The server left the history that was read at this point: what was announced behind it never was, there."""
        if self._book is None:
            return
        for entry in self._book.tables.values():
            entry.announced = [each for each in entry.announced if each.lsn <= lsn]
        self._book.ddl_lsn = min(self._book.ddl_lsn, lsn)

    def open(
        self, published: Iterable[Published], describe: Callable[[list[Published]], list[Description]]
    ) -> list[Name]:
        """At each start: note how the tables are now. The first time that is what the stream begins with.

        Gives the tables of which something was not sent, see `compare`.
        """
        is_first, self._book = self._book is None, self._book or Book({})
        self._index()
        self._compact()
        back = self.compare(published, describe, all_anew=True)
        if is_first:
            for relation_id, entry in sorted(self._book.tables.items()):
                assert entry.current is not None
                self._enter(entry.current, 0, relation_id)
        self.sync()
        return back

    def compare(
        self,
        published: Iterable[Published],
        describe: Callable[[list[Published]], list[Description]],
        *,
        all_anew: bool = False,
    ) -> list[Name]:
        """Take in which tables are published now; gives those that were away meanwhile, or came in another way."""
        assert self._book is not None
        tables = self._book.tables
        now = {each.relation_id: each for each in published}
        changed = [each for each in now.values() if all_anew or self._is_news(each)]
        back = [
            each.name
            for each in changed
            if each.relation_id in tables and self._was_away(tables[each.relation_id], each)
        ]
        for description in describe(changed) if changed else []:
            relation_id = description["relation_id"]
            entry = tables.setdefault(relation_id, TableEntry(None, []))
            known = entry.current
            if known is not None and known["version"] == description["version"]:
                description = {**description, "lsn": known["lsn"]}
            marks = now[relation_id].membership, now[relation_id].shape
            if known != description or marks != (entry.membership, entry.shape):
                entry.current, (entry.membership, entry.shape) = description, marks
                self._write(relation_id)
        for relation_id, entry in tables.items():
            if relation_id not in now and entry.current is not None:
                entry.current = None
                self._write(relation_id)
        return back

    def knows(self, relation_id: int) -> bool:
        """Whether the relation is a table that is or was published."""
        return self._book is not None and relation_id in self._book.tables

    def announce(
        self, commit_lsn: int, relations: Sequence[Relation], *, ddl: Callable[[], list[Description]] | None
    ) -> list[Description]:
        """What must be said before the transaction that commits there. `ddl` tells all shapes, if any may be new."""
        assert self._book is not None
        tables = self._book.tables
        if commit_lsn in self._at:
            said = [entry for number in sorted(self._at[commit_lsn]) for entry in tables[number].announced]
            return [entry.description for entry in said if entry.lsn == commit_lsn]
        shown = {schema_version(each): each for each in relations}
        different = [
            each
            for version, each in shown.items()
            if self._differs(each.relation_id, (each.schema, each.name), version, commit_lsn)
        ]
        new = self._describe(different) if different else []
        if ddl is not None and commit_lsn > self._book.ddl_lsn:
            self._book.ddl_lsn = commit_lsn
            self._journal.append(msgspec.json.encode(_Line(ddl_lsn=commit_lsn)))
            seen = {each["relation_id"] for each in new}
            new += [
                each
                for each in ddl()
                if each["relation_id"] not in seen
                and self._differs(each["relation_id"], _name(each), each["version"], commit_lsn)
            ]
        new.sort(key=lambda each: int(each["relation_id"]))  # the order in which a replay finds them
        return [self._enter({**each, "lsn": format_lsn(commit_lsn)}, commit_lsn, each["relation_id"]) for each in new]

    def sync(self) -> None:
        """Have it on disk."""
        self._journal.sync()
        if self._journal.written_bytes > self._limit:
            self._compact()

    def close(self) -> None:
        self._journal.close()

    def _is_news(self, published: Published) -> bool:
        assert self._book is not None
        entry = self._book.tables.get(published.relation_id)
        if entry is None or entry.current is None:
            return True
        marks = (entry.membership, entry.shape, _name(entry.current))
        return marks != (published.membership, published.shape, published.name)

    def _was_away(self, entry: TableEntry, published: Published) -> bool:
        """An entry of an earlier version knows no membership."""
        return entry.current is None or entry.membership not in ("", published.membership)

    def _differs(self, relation_id: int, name: Name, version: str, lsn: int) -> bool:
        """Whether consumers do not know that this relation has this name and this shape."""
        assert self._book is not None
        entry = self._book.tables.get(relation_id)
        known = entry.in_force(lsn) if entry else None
        if known is None or known.version != version:
            return True
        return next((owner for at, owner in reversed(self._names[name]) if at < lsn), relation_id) != relation_id

    def _enter(self, description: Description, lsn: int, relation_id: int) -> Description:
        assert self._book is not None
        entry = self._book.tables.setdefault(relation_id, TableEntry(None, []))
        entry.current = description
        entry.announced.append(Announced(description["version"], lsn, description))
        del entry.announced[:-_MOST_ENTRIES]
        self._note(relation_id, entry.announced[-1])
        self._write(relation_id)
        return description

    def _index(self) -> None:
        assert self._book is not None
        announced = [(each, number) for number, entry in self._book.tables.items() for each in entry.announced]
        for each, number in sorted(announced, key=lambda pair: pair[0].lsn):
            self._note(number, each)

    def _note(self, relation_id: int, announced: Announced) -> None:
        self._names.setdefault(_name(announced.description), []).append((announced.lsn, relation_id))
        if announced.lsn:
            self._at.setdefault(announced.lsn, set()).add(relation_id)

    def _write(self, relation_id: int) -> None:
        assert self._book is not None
        self._journal.append(msgspec.json.encode(_Line(relation_id, self._book.tables[relation_id])))

    def _compact(self) -> None:
        assert self._book is not None
        lines = [_Line(number, entry) for number, entry in self._book.tables.items()]
        before = self._journal.written_bytes
        self._journal.rewrite(map(msgspec.json.encode, [*lines, _Line(ddl_lsn=self._book.ddl_lsn)]))
        written = self._journal.written_bytes
        self._limit = written + 4 * (written - before) + _COMPACT_BYTES


def _name(description: Description) -> Name:
    return description["schema"], description["table"]
