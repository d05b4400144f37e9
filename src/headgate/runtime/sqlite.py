"""Databases in files of SQLite have a version: old ones are brought up to date, newer ones are refused.

`user_version` counts the scripts that a file has had, and its table `migrations` has the SHA-256 of each. A file that
had another script than this headgate has is refused, since nobody can say what its tables look like. Files of versions
that kept no checksums get them when they are opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256

from headgate.model.errors import StateError

__all__ = ["bring_up_to_date"]

_CREATE = "create table if not exists migrations (version integer primary key, checksum text not null)"


def bring_up_to_date(db: sqlite3.Connection, scripts: Sequence[str], *, what: str, where: str) -> None:
    """Run the scripts that this file has not had yet. Never edit a released one: add another.

    Files of the time before versions have version 0, so the first script must be one that may run again. Raises
    StateError for a file of a newer headgate, and for one that had another script than `scripts` has in its place.
    """
    done = _done(db, scripts, what, where)
    if len(done) < len(scripts):
        with _writing(db):
            _run_missing(db, scripts, _done(db, scripts, what, where))  # others may have been at it meanwhile
    elif None in done:
        with suppress(sqlite3.OperationalError), _writing(db):  # who may only read leaves it to who may write
            _note(db, scripts)


def _run_missing(db: sqlite3.Connection, scripts: Sequence[str], done: Sequence[str | None]) -> None:
    for script in scripts[len(done) :]:
        for statement in _statements(script):
            db.execute(statement)
    db.execute(f"pragma user_version = {len(scripts)}")
    _note(db, scripts)


def _note(db: sqlite3.Connection, scripts: Sequence[str]) -> None:
    db.execute(_CREATE)
    rows = [(version, _checksum(script)) for version, script in enumerate(scripts, 1)]
    db.executemany("insert or ignore into migrations values (?, ?)", rows)


def _done(db: sqlite3.Connection, scripts: Sequence[str], what: str, where: str) -> list[str | None]:
    """Return the checksums of the scripts that the file has had; None for those of versions that kept none."""
    version = int(db.execute("pragma user_version").fetchone()[0])
    if not 0 <= version <= len(scripts):
        raise StateError(
            f"{what} have version {version}, this headgate reads version {len(scripts)}",
            where=where,
            remedy="run the headgate version that wrote them, or move the file away",
        )
    kept = _kept(db)
    done = [kept.get(number) for number in range(1, version + 1)]
    for number, (checksum, script) in enumerate(zip(done, scripts, strict=False), 1):
        if checksum not in (None, _checksum(script)):
            raise StateError(
                f"{what} have had another step {number} than this headgate has",
                where=where,
                remedy="install headgate anew; who changes a schema adds a step and leaves released ones as they are",
            )
    return done


def _kept(db: sqlite3.Connection) -> dict[int, str]:
    if not db.execute("select 1 from sqlite_master where type = 'table' and name = 'migrations'").fetchone():
        return {}
    return dict(db.execute("select version, checksum from migrations"))


def _checksum(script: str) -> str:
    return sha256(script.encode()).hexdigest()


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _statements(script: str) -> Iterator[str]:
    """One by one: what Python calls a script ends the transaction that it is in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
