"""Files of SQLite go forward by scripts that never change: other scripts are refused, older files taken over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headgate.model import StateError
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
from headgate.relay.store.backend import scripts as relay_scripts
from headgate.relay.store.sqlite import SqliteBackend
from headgate.runtime.sqlite import bring_up_to_date
from headgate.spool import dead_letters
from headgate.spool.dead_letters import DeadLetters

_SCRIPTS = ("create table if not exists one (n);\ninsert into one values (1);", "create table two (n);")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made.sqlite"


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db:
        yield db


def bring(db: sqlite3.Connection, scripts: Sequence[str] = _SCRIPTS) -> None:
    bring_up_to_date(db, scripts, what="the things", where="here")


def tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}


def test_each_script_runs_once(db: sqlite3.Connection) -> None:
    bring(db, _SCRIPTS[:1])
    for _ in range(2):
        bring(db)
    assert tables(db) == {"one", "two", "migrations"}
    assert db.execute("select count(*) from one").fetchone() == (1,)
    assert db.execute("select version, length(checksum) from migrations").fetchall() == [(1, 64), (2, 64)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_script_that_was_edited_is_refused(db: sqlite3.Connection, number: int) -> None:
    bring(db)
    edited = list(_SCRIPTS)
    edited[number] += " -- better"
    for scripts in (edited, [*edited, "create table three (n);"]):
        with pytest.raises(StateError, match=f"the things have had another step {number + 1}") as caught:
            bring(db, scripts)
        assert caught.value.where == "here"
        assert "install headgate anew" in caught.value.remedy
    assert "three" not in tables(db)


def test_a_newer_file_is_refused(db: sqlite3.Connection) -> None:
    bring(db)
    with pytest.raises(StateError, match="the things have version 2, this headgate reads version 1"):
        bring(db, _SCRIPTS[:1])


def test_a_script_that_fails_leaves_nothing_behind(db: sqlite3.Connection) -> None:
    bring(db, _SCRIPTS[:1])
    with pytest.raises(sqlite3.OperationalError):
        bring(db, [_SCRIPTS[0], "create table two (n);\ncreate table one (n);"])
    bring(db)
    assert tables(db) == {"one", "two", "migrations"}


@pytest.mark.parametrize("forget", ["drop table migrations", "delete from migrations where version = 2"])
def test_what_kept_no_checksums_is_taken_over(db: sqlite3.Connection, forget: str) -> None:
    """As versions before left it; those may go on beside it, and run scripts without a word in the table."""
    bring(db)
    db.execute(forget)
    db.commit()
    bring(db)
    with pytest.raises(StateError, match="another step 2"):
        bring(db, [_SCRIPTS[0], "create table due (n);"])


def test_who_may_only_read_leaves_checksums_to_others(db: sqlite3.Connection, path: Path) -> None:
    bring(db)
    db.execute("drop table migrations")
    db.commit()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        bring(reader)
        assert reader.execute("select n from one").fetchall() == [(1,)]
    bring(db)
    assert "migrations" in tables(db)


def test_dead_letters_of_an_edited_script_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeadLetters(path)
    store.add([DeadLetter("m", "", Address("s", "t"), "cap", "p", b"x")])
    monkeypatch.setattr(dead_letters, "_SCRIPTS", (dead_letters._FIRST + "-- better",))
    with pytest.raises(StateError, match="the dead letters have had another step 1"):
        store.list()
    monkeypatch.undo()
    assert len(store.list()) == 1


def test_a_relay_of_an_edited_script_is_refused(path: Path) -> None:
    SqliteBackend(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("select count(*) from migrations").fetchone() == (len(relay_scripts("sqlite")),)
        db.execute("update migrations set checksum = 'x' where version = 1")
    with pytest.raises(StateError, match="another step 1"):
        SqliteBackend(path)
