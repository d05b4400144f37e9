"""Databases in files of SQLite have a version: old ones are brought up to date, newer ones are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from headgate.model.errors import StateError

__all__ = ["bring_up_to_date"]


def bring_up_to_date(db: sqlite3.Connection, scripts: Sequence[str], *, what: str, where: str) -> None:
    """Run the scripts that this file has not had yet; its `user_version` counts them. Never edit a released one.

    Files of the time before versions have 0, so the first script must be one that may run again.
    """
    if _version(db, scripts, what, where) == len(scripts):
        return
    db.execute("begin immediate")
    try:
        for script in scripts[_version(db, scripts, what, where) :]:  # others may have been at it meanwhile
            for statement in _statements(script):
                db.execute(statement)
        db.execute(f"pragma user_version = {len(scripts)}")
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _version(db: sqlite3.Connection, scripts: Sequence[str], what: str, where: str) -> int:
    version = int(db.execute("pragma user_version").fetchone()[0])
    if not 0 <= version <= len(scripts):
        raise StateError(
            f"{what} have version {version}, this headgate reads version {len(scripts)}",
            where=where,
            remedy="run the headgate version that wrote them, or move the file away",
        )
    return version


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
