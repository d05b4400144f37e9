"""One check and how it went."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from headgate.model import HeadgateError, Kind, Retry

__all__ = ["Check", "Outcome", "answered", "failed"]


class Outcome(enum.StrEnum):
    """How a check went. Only `FAIL` makes `headgate check` exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and the exact command or SQL that mends it."""

    subject: str
    outcome: Outcome
    found: str
    fix: str = ""
    final: Kind | None = None  # of a failure that a pipeline would not get over by waiting

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["final"]
        return fields


def failed(subject: str, error: HeadgateError) -> Check:
    final = None if error.retry is Retry.BACKOFF else error.kind
    return Check(subject, Outcome.FAIL, str(error), error.remedy, final)


def answered(subject: str, error: psycopg.Error) -> Check:
    """A question that PostgreSQL answered with an error: its own words, with the code that names them."""
    message = error.diag.message_primary or (str(error).strip().splitlines() or ["no answer"])[-1]
    code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return Check(subject, Outcome.FAIL, f"PostgreSQL answered: {message}{code}", error.diag.message_hint or "")
