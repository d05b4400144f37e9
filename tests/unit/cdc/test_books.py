"""What the reader has learned survives a crash at any byte, and a replay finds it in the same places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.postgres.describe import Published
from headgate.sources.postgres_cdc.journal import Journal, JournalReader, read_lines
from headgate.sources.postgres_cdc.schemas import BookReader, SchemaBook, read_book
from headgate.sources.postgres_cdc.type_book import TypeBook, read_types
from headgate.wire.envelope import schema_version
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import Attribute, TypeInfo, TypeKind


def test_half_a_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    journal = Journal(path)
    journal.rewrite([b"one", b"two"])
    journal.append(b"three")
    journal.close()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        lines = max(whole[:length].count(b"\n") - 1, 0)  # the first is the file's token
        assert read_lines(path) == [b"one", b"two", b"three"][:lines]


def test_another_process_reads_each_line_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "log")
    reader = JournalReader(tmp_path / "log")
    assert reader.read() == (False, [])
    journal.rewrite([b"one"])
    assert reader.read() == (True, [b"one"])
    journal.append(b"two")
    journal.sync()
    assert reader.read() == (False, [b"two"])
    journal.rewrite([b"both"])
    assert reader.read() == (True, [b"both"])
    journal.close()


def pair(*names: str) -> TypeInfo:
    return TypeInfo(20000, "pair", TypeKind.COMPOSITE, attributes=tuple(Attribute(name, 23) for name in names))


def attributes(directory: Path, lsn: int) -> list[str]:
    info = read_types(directory, lsn).info(20000)
    assert info is not None
    return [each.name for each in info.attributes]


def test_types_are_those_of_their_place(tmp_path: Path) -> None:
    book = TypeBook(tmp_path)
    book.begin(0)
    book.add(50, [pair("a")])  # not known before: so from the beginning
    assert not book.add(60, [pair("a")])
    assert book.add(300, [pair("c")])  # seen by looking, before the stream came to where it was altered twice
    assert book.add(100, [pair("b")])
    assert book.add(200, [pair("c")])
    assert book.next_lsn == 100
    assert (book.due(99), book.due(100), book.due(250)) == ([], [pair("b")], [pair("c")])
    book.close()
    assert [attributes(tmp_path, lsn) for lsn in (0, 99, 100, 199, 200, 999)] == [
        ["a"], ["a"], ["b"], ["b"], ["c"], ["c"],
    ]  # fmt: skip
    again = TypeBook(tmp_path)  # after a crash: the stream begins behind what was delivered
    again.begin(150)
    assert again.next_lsn == 200
    assert not again.add(200, [pair("c")])
    again.close()
    assert [attributes(tmp_path, lsn) for lsn in (0, 150, 200)] == [["b"], ["b"], ["c"]]


def relation(number: int, name: str, *columns: str) -> Relation:
    named = tuple(RelationColumn(is_key=False, name=column, type_id=23, type_modifier=-1) for column in columns)
    return Relation(number, "public", name, ReplicaIdentity.DEFAULT, named)


def described(shown: Sequence[Relation]) -> list[dict[str, Any]]:
    return [
        {"relation_id": r.relation_id, "schema": r.schema, "table": r.name, "version": schema_version(r), "lsn": ""}
        for r in shown
    ]


def opened(directory: Path, *tables: Relation) -> SchemaBook:
    book = SchemaBook(directory, described)
    published = [Published(each.relation_id, each.schema, each.name, None, "m") for each in tables]
    known = {each.relation_id: each for each in tables}
    book.open(published, lambda asked: described([known[each.relation_id] for each in asked]))
    return book


def test_a_replay_finds_the_same_shapes_in_the_same_places(tmp_path: Path) -> None:
    old, new, other = relation(1, "t", "a"), relation(1, "t", "a", "b"), relation(2, "t", "a")
    book = opened(tmp_path, old)
    told = [book.announce(lsn, [each], ddl=None) for lsn, each in ((10, old), (20, new), (30, other), (40, other))]
    assert [[each["relation_id"] for each in said] for said in told] == [[], [1], [2], []]
    book.sync()
    book.close()
    again = opened(tmp_path, new)
    assert [again.announce(lsn, [each], ddl=None) for lsn, each in ((20, new), (30, other), (40, other))] == told[1:]
    again.close()


def test_a_table_that_was_away_is_told(tmp_path: Path) -> None:
    table = relation(1, "t", "a")
    book = opened(tmp_path, table)
    here = [Published(1, "public", "t", None, "m")]
    assert book.compare(here, lambda _: described([table])) == []
    assert book.compare([], lambda _: []) == []
    book.close()
    again = SchemaBook(tmp_path, described)  # the process ended while it was away
    assert again.open(here, lambda _: described([table])) == [("public", "t")]
    assert again.compare([Published(1, "public", "t", None, "other")], lambda _: described([table])) == [
        ("public", "t")
    ]
    again.close()


def test_the_book_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    table = relation(1, "t", "a")
    [description] = described([table])
    announced = {"version": description["version"], "lsn": 0, "description": description}
    entry = {"current": description, "announced": [announced]}
    (tmp_path / "schemas.json").write_bytes(msgspec.json.encode({"tables": {1: entry}, "ddl_lsn": 7}))
    book = opened(tmp_path, table)
    assert book.announce(10, [table], ddl=None) == []
    book.close()
    read = read_book(tmp_path)
    assert read is not None
    assert (read.ddl_lsn, list(read.tables)) == (7, [1])
    assert list(BookReader(tmp_path).changes()) == [1]
