"""Filters of ACLs, as clients write them, and what cannot be an ACL.

Specification: KIP-140, and KIP-290 for the pattern type MATCH: every ACL that would count for a name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from headgate.gateway.access.acls import ANY_NAME, CLUSTER_NAME, Acl, Kind, Operation, Pattern, Permission
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.security import AclCreation
from headgate.wire.kafka.refusal import Refused

__all__ = ["AclFilter", "acl_of"]

_ANY, _MATCH = 1, 2  # in place of a number of the enums; MATCH is a type of patterns only
_MAX_NAME_BYTES, _MAX_PRINCIPAL_BYTES, _MAX_HOST_BYTES = 1000, 500, 100  # as kafka.acls has it
_E = TypeVar("_E", bound=enum.IntEnum)


class _Asked(Protocol):
    """The fields that requests with filters have."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs; None is any."""

    kind: Kind | None = None
    pattern: Pattern | None = None
    is_match: bool = False  # those that count for the name, whatever their pattern
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    @classmethod
    def parse(cls, asked: _Asked) -> Self:
        """Read a filter of DescribeAcls or DeleteAcls. Raises `Refused`: an unknown value is not no value."""
        is_match = asked.pattern_type_filter == _MATCH
        return cls(
            kind=_known(Kind, asked.resource_type_filter, "type of resource"),
            pattern=None if is_match else _known(Pattern, asked.pattern_type_filter, "type of pattern"),
            is_match=is_match,
            name=asked.resource_name_filter,
            principal=asked.principal_filter,
            host=asked.host_filter,
            operation=_known(Operation, asked.operation, "operation"),
            permission=_known(Permission, asked.permission_type, "permission"),
        )

    def fits(self, acl: Acl) -> bool:
        """Tell whether an ACL is one of those that are asked for."""
        return (
            self.kind in (None, acl.kind)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern not in (None, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if not self.is_match:
            return False
        return self.name.startswith(acl.name) if acl.pattern is Pattern.PREFIXED else acl.name == ANY_NAME


def acl_of(asked: AclCreation) -> Acl:
    """Return the ACL that a client wants to make. Raises `Refused` with the reason why there can be none."""
    kind = _one(Kind, asked.resource_type, "type of resource")
    pattern = _one(Pattern, asked.resource_pattern_type, "type of pattern")
    _check(asked.resource_name, "name", _MAX_NAME_BYTES)
    _check(asked.principal, "principal", _MAX_PRINCIPAL_BYTES)
    _check(asked.host, "host", _MAX_HOST_BYTES)
    if not all(asked.principal.partition(":")):
        raise _invalid(f"the principal {asked.principal!r} is not written as User:name")
    if kind is Kind.CLUSTER and asked.resource_name != CLUSTER_NAME:
        raise _invalid(f"the only name of a CLUSTER is {CLUSTER_NAME}")
    operation = _one(Operation, asked.operation, "operation")
    permission = _one(Permission, asked.permission_type, "permission")
    return Acl(kind, pattern, asked.resource_name, asked.principal, asked.host, operation, permission)


def _check(text: str, what: str, most_bytes: int) -> None:
    if not text or "\0" in text or len(text.encode()) > most_bytes:
        raise _invalid(f"a {what} has 1 to {most_bytes} bytes, none of them zero")


def _known(values: type[_E], number: int, what: str) -> _E | None:
    return None if number == _ANY else _one(values, number, what)


def _one(values: type[_E], number: int, what: str) -> _E:
    try:
        return values(number)
    except ValueError:
        known = ", ".join(each.name for each in values)
        raise _invalid(f"there is no {what} {number} here; there are {known}") from None


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
