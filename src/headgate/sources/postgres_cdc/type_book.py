"""The types of the database that are not built in: kept beside the spool with their history.

The stream has values as text, and the names of a composite's attributes only the catalog knows. When `ALTER TYPE`
gives it other ones, rows before and after are read by different rules: so each entry says from where on it is in force.

    <spool>/types.log    one entry in each line, oldest first
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headgate.sources.postgres_cdc.journal import Journal, read_lines
from headgate.wire.pgtypes import TypeCatalog, TypeInfo

__all__ = ["TypeBook", "read_types"]

_FILE = "types.log"
_NEVER = float("inf")


class _Entry(msgspec.Struct, frozen=True):
    """Types that are so for transactions which commit at the LSN or behind it."""

    lsn: int
    types: list[TypeInfo]


class TypeBook:
    """Owned by the reader."""

    def __init__(self, directory: Path) -> None:
        self._entries = _read(directory)
        self._journal = Journal(directory / _FILE)
        self._told_lsn = 0
        self._history: dict[int, list[tuple[int, TypeInfo]]] = {}
        self.next_lsn: float = _NEVER  # of the first entry that the stream has not come to

    def forget_after(self, lsn: int) -> None:
        """The server left the history that was read at this point. Before `begin`, which has it on disk."""
        self._entries = [entry for entry in self._entries if entry.lsn <= lsn]

    def begin(self, lsn: int) -> None:
        """The stream begins behind this point, again. What is in force there needs no history."""
        entries = sorted(self._entries, key=_lsn)
        now = {info.oid: info for entry in entries if entry.lsn <= lsn for info in entry.types}
        self._entries = [_Entry(0, list(now.values())), *(entry for entry in entries if entry.lsn > lsn)]
        self._history = {}
        for entry in self._entries:
            self._note(entry)
        self._journal.rewrite([msgspec.json.encode(entry) for entry in self._entries])
        self._aim(lsn)

    def knows(self, oid: int) -> bool:
        return oid in self._history

    def add(self, lsn: int, types: Iterable[TypeInfo]) -> bool:
        """Types as they are from this point on; whether any changed. One that was not known was always so."""
        found = list(types)
        self._enter(0, [info for info in found if not self.knows(info.oid)])
        changed = [info for info in found if self._in_force(info.oid, lsn) != info]
        self._enter(lsn, changed)
        return bool(changed)

    def due(self, commit_lsn: int) -> list[TypeInfo]:
        """What becomes different with the transaction that commits there."""
        entries = sorted((each for each in self._entries if self._told_lsn < each.lsn <= commit_lsn), key=_lsn)
        self._aim(commit_lsn)
        return list({info.oid: info for entry in entries for info in entry.types}.values())

    def sync(self) -> None:
        """Have it on disk."""
        self._journal.sync()

    def close(self) -> None:
        self._journal.close()

    def _in_force(self, oid: int, lsn: int) -> TypeInfo:
        return next(info for since, info in reversed(self._history[oid]) if since <= lsn)

    def _enter(self, lsn: int, types: list[TypeInfo]) -> None:
        if not types:
            return
        entry = _Entry(lsn, types)
        self._entries.append(entry)
        self._note(entry)
        self._journal.append(msgspec.json.encode(entry))
        self._aim(self._told_lsn)

    def _note(self, entry: _Entry) -> None:
        for info in entry.types:
            history = self._history.setdefault(info.oid, [])
            history.append((entry.lsn, info))
            history.sort(key=lambda pair: pair[0])

    def _aim(self, told_lsn: int) -> None:
        self._told_lsn = told_lsn
        self.next_lsn = min((entry.lsn for entry in self._entries if entry.lsn > told_lsn), default=_NEVER)


def read_types(directory: Path, lsn: int | None = None) -> TypeCatalog:
    """The catalog for what comes behind the LSN, or as the reader last saw it; without one, unknown types are text."""
    entries = _read(directory)
    return TypeCatalog(info for entry in entries if lsn is None or entry.lsn <= lsn for info in entry.types)


def _read(directory: Path) -> list[_Entry]:
    entries = [msgspec.json.decode(line, type=_Entry) for line in read_lines(directory / _FILE)]
    return sorted(entries, key=_lsn)


def _lsn(entry: _Entry) -> int:
    return entry.lsn
