"""What is wrong with a schema, and why one schema cannot read what was written with another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from headgate.model import DataError
from headgate.model.errors import Kind

__all__ = ["InvalidSchemaError", "Problem", "invalid"]

_MOST_CHARS = 200  # of what a schema says, in a message about it


class InvalidSchemaError(DataError, kind=Kind.DATA):
    """A text that is no schema of its kind, or one beyond the limits of the registry."""


def invalid(message: str, remedy: str = "correct the schema") -> NoReturn:
    """Raise InvalidSchemaError."""
    raise InvalidSchemaError(message, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why the reader's schema cannot read all that the writer's schema allows."""

    kind: str  # such as TYPE_MISMATCH
    path: str  # in the reader's schema, such as /fields/2/type
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path or '/'}: {_shortened(self.text)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 3] + "..."
