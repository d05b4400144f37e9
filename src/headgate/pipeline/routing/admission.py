"""Which destinations rows may have: the lists, as sets. Pure, and part of what travels to the executors."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headgate.model.address import Address

__all__ = ["Admission", "Patterns", "Reason"]

# What every kind of destination takes as a name. Rows come from outside: a blank or a wildcard could mean anything.
_NAME = re.compile(r"(?=.{1,249}\Z)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Mode = Literal["open", "allowlist", "denylist"]


class Reason(enum.StrEnum):
    """Why a row may not have the destination it wants."""

    CAP = "cap"
    DENYLIST = "denylist"
    UNKNOWN = "unknown"  # not on the allowlist
    CIRCUIT_OPEN = "circuit_open"
    PARTITION_OUT_OF_RANGE = "partition_id_out_of_range"
    MISSING = "missing_destination"
    INVALID_NAME = "invalid_name"
    UNSERVABLE = "unservable"  # the destination can never take it


@dataclass(frozen=True, slots=True)
class Patterns:
    """Entries of a list by what they leave open, so that looking one up takes three steps however long the list."""

    exact: frozenset[Address] = frozenset()
    streams: frozenset[str] = frozenset()  # any topic in these
    topics: frozenset[str] = frozenset()  # these, in any stream

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]]) -> Patterns:
        """Entries are pairs of stream and topic, `*` for any."""
        listed = [Address(*entry) for entry in entries]
        return cls(
            frozenset(entry for entry in listed if "*" not in entry),
            frozenset(entry.stream for entry in listed if entry.topic == "*"),
            frozenset(entry.topic for entry in listed if entry.stream == "*"),
        )

    def __contains__(self, wanted: Address) -> bool:
        return wanted in self.exact or wanted.stream in self.streams or wanted.topic in self.topics


@dataclass(frozen=True, slots=True)
class Admission:
    """The lists and the limits."""

    mode: Mode = "open"
    allowed: Patterns = Patterns()
    denied: Patterns = Patterns()
    max_destinations: int = 256
    max_concurrent: int = 16

    def refusal(self, wanted: Address) -> Reason | None:
        """Why a destination is refused whatever else is known of it; None if it is not."""
        if not _NAME.fullmatch(wanted.topic) or (wanted.stream and not _NAME.fullmatch(wanted.stream)):
            return Reason.INVALID_NAME
        if self.mode == "allowlist" and wanted not in self.allowed:
            return Reason.UNKNOWN
        if self.mode == "denylist" and wanted in self.denied:
            return Reason.DENYLIST
        return None
