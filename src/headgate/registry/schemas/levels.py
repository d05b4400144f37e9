"""Levels of compatibility: which versions a new schema is compared with, and in which direction."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from headgate.registry.schemas.kinds import Schema, read_problems
from headgate.registry.schemas.problems import Problem

__all__ = ["Incompatibility", "Level", "incompatibilities"]


class Level(enum.StrEnum):
    """What a new version of a subject owes to those before it."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all versions count, and not the latest only."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_old(self) -> bool:
        """Whether the new schema must read data of the old ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        """Whether the old schemas must read data of the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


class Incompatibility(NamedTuple):
    """One reason, with the version that it is about."""

    version: int
    problem: Problem

    def __str__(self) -> str:
        return f"version {self.version}: {self.problem}"


def incompatibilities(
    level: Level, new: Schema, earlier: Sequence[tuple[int, Schema]], *, all_of_them: bool = False
) -> list[Incompatibility]:
    """Return why a schema cannot follow these versions, oldest first, or why one of them forbids it.

    The latest is compared, and the others if the level is transitive, or with `all_of_them`.
    """
    if level is Level.NONE:
        return []
    chosen = earlier if level.is_transitive or all_of_them else earlier[-1:]
    found: list[Incompatibility] = []
    for version, old in reversed(chosen):
        problems = read_problems(new, old) if level.reads_old else []
        problems += read_problems(old, new) if level.is_read_by_old else []
        found += [Incompatibility(version, problem) for problem in dict.fromkeys(problems)]
    return found
