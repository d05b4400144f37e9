"""Refusals with the codes that clients of Confluent's registry know."""

from __future__ import annotations

from headgate.model import UsageError
from headgate.model.errors import Kind

__all__ = [
    "RefusedError",
    "bad_request",
    "incompatible",
    "invalid_schema",
    "invalid_version",
    "no_schema",
    "no_subject",
    "no_version",
    "not_permitted",
]


class RefusedError(UsageError, kind=Kind.USAGE):
    """A request that the registry refuses: `code` is for programs, and begins with the status of HTTP."""

    def __init__(self, code: int, message: str, *, remedy: str = "", where: str = "") -> None:
        super().__init__(message, remedy=remedy, where=where)
        self.code = code

    @property
    def status(self) -> int:
        """The status of HTTP: 404 for 40401."""
        return self.code if self.code < 1000 else self.code // 100

    def __reduce__(self) -> tuple[object, ...]:
        return RefusedError, (self.code, self.message)


def bad_request(message: str) -> RefusedError:
    return RefusedError(422, message)


def no_subject(subject: str) -> RefusedError:
    return RefusedError(40401, f"Subject '{subject}' not found.")


def no_version(version: object) -> RefusedError:
    return RefusedError(40402, f"Version {version} not found.")


def no_schema(what: object = "") -> RefusedError:
    return RefusedError(40403, f"Schema {what} not found" if what != "" else "Schema not found")


def invalid_schema(message: str) -> RefusedError:
    return RefusedError(42201, f"Invalid schema: {message}")


def invalid_version(version: object) -> RefusedError:
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RefusedError(42202, f"The specified version '{version}' is not a valid version id. {allowed}")


def not_permitted(message: str) -> RefusedError:
    return RefusedError(42205, message)


def incompatible(subject: str, reasons: list[str]) -> RefusedError:
    text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
    return RefusedError(409, text + str(reasons))
