"""One check and how it went."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

from headgate.model import HeadgateError

__all__ = ["Check", "Outcome", "failed"]


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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def failed(subject: str, error: HeadgateError) -> Check:
    return Check(subject, Outcome.FAIL, str(error), error.remedy)
