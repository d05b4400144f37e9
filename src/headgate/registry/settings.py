"""What was set: the level of compatibility and the mode, of all subjects and of one."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.registry import errors
from headgate.registry.database import Database, Transaction
from headgate.registry.schemas import Level

__all__ = ["ALL", "Mode", "Settings", "SettingsStore", "read_settings"]

ALL = ""  # in the place of a subject: what counts for those that have nothing of their own


class Mode(enum.StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"  # schemas come with their ids, and are not compared


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts for a subject, and what it has of its own."""

    level: Level
    mode: Mode
    own_level: Level | None
    own_mode: Mode | None


async def read_settings(reading: Transaction, subject: str) -> Settings:
    """Return what counts for a subject."""
    found = {row[0]: row[1:] for row in await reading.rows("settings", {"subject": subject})}
    own: Sequence[str | None] = found.get(subject, (None, None))
    of_all: Sequence[str | None] = found.get(ALL, (None, None))
    return Settings(
        Level(own[0] or of_all[0] or Level.BACKWARD),
        Mode(own[1] or of_all[1] or Mode.READWRITE),
        Level(own[0]) if own[0] else None,
        Mode(own[1]) if own[1] else None,
    )


@dataclass(eq=False, slots=True)
class SettingsStore:
    """What was set in a database."""

    database: Database

    async def read(self, subject: str) -> Settings:
        async with self.database.transaction() as reading:
            return await read_settings(reading, subject)

    async def set_level(self, subject: str, level: Level | None) -> Level | None:
        """Set a level, or forget the one that was set; return the one before."""
        async with self.database.transaction(writes=True) as writing:
            await writing.lock()
            before = await read_settings(writing, subject)
            if before.mode is Mode.READONLY:
                raise errors.not_permitted(f"Subject {subject or '*'} is in read-only mode")
            await writing.rows("set_compatibility", {"subject": subject, "value": level and level.value})
            return before.own_level

    async def set_mode(self, subject: str, mode: Mode | None, *, force: bool = False) -> Mode | None:
        """Set a mode, or forget the one that was set; return the one before."""
        async with self.database.transaction(writes=True) as writing:
            await writing.lock()
            before = await read_settings(writing, subject)
            if mode is Mode.IMPORT and before.own_mode is not mode and not force:
                ((has_versions,),) = await writing.rows("has_versions", {"subject": subject})
                if has_versions:
                    raise errors.not_permitted("Cannot import since found existing subjects")
            await writing.rows("set_mode", {"subject": subject, "value": mode and mode.value})
            return before.own_mode
