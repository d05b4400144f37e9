"""Every error headgate raises on purpose: kind -> retry policy -> remedy.

    HeadgateError
    ├── ConfigError        the configuration is wrong             never retried   exit 3
    ├── UsageError         the command line or an option is wrong never retried   exit 2
    ├── ConnectError       a server cannot be reached             backoff         exit 4
    ├── AuthError          a server refused us                    manual          exit 4
    ├── DependencyError    Java, pyarrow, a binary is missing     manual          exit 4
    ├── OccupiedError      a port or directory is in use          manual          exit 4
    ├── CapacityError      a queue, stream or disk is full        backoff         exit 5
    ├── DeliveryError      a destination did not acknowledge      backoff         exit 5
    ├── ProtocolError      bytes that break a wire format         never retried   exit 5
    ├── DataError          a row that cannot be handled           manual          exit 5
    ├── StateError         state or checkpoint does not fit       manual          exit 5
    └── InternalError      a bug in headgate                      backoff         exit 70

An error says what happened (`message`), where (`where`), and what to do (`remedy`). Spark pickles errors between
its processes and often keeps only the text of the traceback, so an error survives both ways: `__reduce__` for
pickle, and a machine-readable note that every traceback ends with and `from_text` reads back.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import ClassVar, Self

__all__ = [
    "AuthError",
    "CapacityError",
    "ConfigError",
    "ConnectError",
    "DataError",
    "DeliveryError",
    "DependencyError",
    "HeadgateError",
    "InternalError",
    "Kind",
    "OccupiedError",
    "ProtocolError",
    "Retry",
    "StateError",
    "UsageError",
]

_TEXT_MARKER = "headgate-error: "


class Kind(enum.StrEnum):
    """What sort of thing went wrong. The kind alone decides the retry policy and the exit code."""

    CONFIG = "config"
    USAGE = "usage"
    CONNECT = "connect"
    AUTH = "auth"
    DEPENDENCY = "dependency"
    OCCUPIED = "occupied"
    CAPACITY = "capacity"
    DELIVERY = "delivery"
    PROTOCOL = "protocol"
    DATA = "data"
    STATE = "state"
    INTERNAL = "internal"


class Retry(enum.StrEnum):
    """What the supervisor does after an error of a kind."""

    NEVER = "never"  # the same input fails the same way
    MANUAL = "manual"  # somebody must act first; status becomes `error`
    BACKOFF = "backoff"  # it may pass by itself; status becomes `degraded`


_RETRY: dict[Kind, Retry] = {
    Kind.CONFIG: Retry.NEVER,
    Kind.USAGE: Retry.NEVER,
    Kind.CONNECT: Retry.BACKOFF,
    Kind.AUTH: Retry.MANUAL,
    Kind.DEPENDENCY: Retry.MANUAL,
    Kind.OCCUPIED: Retry.MANUAL,
    Kind.CAPACITY: Retry.BACKOFF,
    Kind.DELIVERY: Retry.BACKOFF,
    Kind.PROTOCOL: Retry.NEVER,
    Kind.DATA: Retry.MANUAL,
    Kind.STATE: Retry.MANUAL,
    Kind.INTERNAL: Retry.BACKOFF,
}

_EXIT_CODE: dict[Kind, int] = {
    Kind.CONFIG: 3,
    Kind.USAGE: 2,
    Kind.CONNECT: 4,
    Kind.AUTH: 4,
    Kind.DEPENDENCY: 4,
    Kind.OCCUPIED: 4,
    Kind.CAPACITY: 5,
    Kind.DELIVERY: 5,
    Kind.PROTOCOL: 5,
    Kind.DATA: 5,
    Kind.STATE: 5,
    Kind.INTERNAL: 70,
}


class HeadgateError(Exception):
    """The root of the tree. Raise one of its children."""

    kind: ClassVar[Kind] = Kind.INTERNAL
    _by_kind: ClassVar[dict[Kind, type[HeadgateError]]] = {}

    def __init_subclass__(cls, *, kind: Kind) -> None:
        super().__init_subclass__()
        cls.kind = kind
        HeadgateError._by_kind.setdefault(kind, cls)

    def __init__(self, message: str, *, remedy: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.where = where
        self._annotate()

    def _annotate(self) -> None:
        """Python prints notes below a traceback: the remedy for people, then the line that `from_text` reads."""
        self.__notes__ = [f"remedy: {self.remedy}", self.to_text()]

    @staticmethod
    def of_kind(kind: Kind) -> type[HeadgateError]:
        """The class of a kind."""
        return HeadgateError._by_kind[kind]

    @property
    def retry(self) -> Retry:
        return _RETRY[self.kind]

    @property
    def exit_code(self) -> int:
        return _EXIT_CODE[self.kind]

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r}, remedy={self.remedy!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.where)

    def as_dict(self) -> dict[str, str]:
        """What logs, the HTTP API and `--json` show of an error."""
        return {
            "kind": self.kind.value,
            "message": self.message,
            "where": self.where,
            "remedy": self.remedy,
            "retry": self.retry.value,
        }

    def to_text(self) -> str:
        """The error as one line that `from_text` can read back."""
        return f"{_TEXT_MARKER}{json.dumps(self.as_dict())}"

    @staticmethod
    def from_text(text: str) -> HeadgateError | None:
        """Find an error that `to_text` wrote inside a longer text, such as Spark's report of a Python traceback."""
        _, marker, rest = text.rpartition(_TEXT_MARKER)
        if not marker:
            return None
        try:
            fields, _ = json.JSONDecoder().raw_decode(rest)
            return HeadgateError.from_dict(fields)
        except (ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def from_dict(fields: Mapping[str, str]) -> HeadgateError:
        """The error that `as_dict` described."""
        cls = HeadgateError._by_kind[Kind(fields["kind"])]
        return cls(fields["message"], remedy=fields["remedy"], where=fields["where"])

    def at(self, where: str) -> Self:
        """Name the place once, at the boundary that knows it; an inner, more exact place wins."""
        self.where = self.where or where
        self._annotate()
        return self


def _rebuild(cls: type[HeadgateError], message: str, remedy: str, where: str) -> HeadgateError:
    return cls(message, remedy=remedy, where=where)


class ConfigError(HeadgateError, kind=Kind.CONFIG):
    """The configuration file is wrong."""


class UsageError(HeadgateError, kind=Kind.USAGE):
    """A command line or a Spark option is wrong."""


class ConnectError(HeadgateError, kind=Kind.CONNECT):
    """A server cannot be reached, or the connection broke."""


class AuthError(HeadgateError, kind=Kind.AUTH):
    """A server refused the credentials, or the role may not do this."""


class DependencyError(HeadgateError, kind=Kind.DEPENDENCY):
    """Something that must be installed is missing or too old."""


class OccupiedError(HeadgateError, kind=Kind.OCCUPIED):
    """A port, directory or name is already in use by something else."""


class CapacityError(HeadgateError, kind=Kind.CAPACITY):
    """A stream, spool, queue or disk is full."""


class DeliveryError(HeadgateError, kind=Kind.DELIVERY):
    """A destination did not acknowledge what was sent."""


class ProtocolError(HeadgateError, kind=Kind.PROTOCOL):
    """A peer sent bytes that its protocol does not allow."""


class DataError(HeadgateError, kind=Kind.DATA):
    """A row cannot be handled as asked."""


class StateError(HeadgateError, kind=Kind.STATE):
    """Saved state or a checkpoint does not fit this pipeline."""


class InternalError(HeadgateError, kind=Kind.INTERNAL):
    """A bug in headgate, or a failure nobody classified yet."""
