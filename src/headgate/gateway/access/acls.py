"""ACLs and what follows from them: no database, no clock.

    rules = Rules([Acl(TOPIC, PREFIXED, "orders.", "User:alice", "*", READ, ALLOW)])
    rules.allows("User:alice", "10.0.0.7", READ, TOPIC, "orders.eu")        True

An ACL that denies wins over any that allows. Nothing is allowed that no ACL allows, unless the gateway is told to allow
everybody what no ACL is about. A superuser may do everything.

Specification: KIP-11, KIP-290 (prefixes), KIP-679 (WRITE on any topic is enough for an idempotent producer).
"""

from __future__ import annotations

import enum
import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "ANYBODY",
    "CLUSTER_NAME",
    "OPERATIONS_OF",
    "Acl",
    "Kind",
    "Operation",
    "Pattern",
    "Permission",
    "Rules",
    "host_of",
]

ANY_HOST = ANY_NAME = "*"
ANYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"  # the one name of the one cluster
_MOST_DECISIONS = 100_000


class Kind(enum.IntEnum):
    """What an ACL is about, by the protocol's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Pattern(enum.IntEnum):
    """How an ACL names it."""

    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """What somebody wants to do."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(enum.IntEnum):
    """Whether an ACL allows or denies."""

    DENY = 2
    ALLOW = 3


# The operations that there are for each kind; those that a client is told of when it asks what it may do.
_O = Operation
OPERATIONS_OF = {
    Kind.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    Kind.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE),
    Kind.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        _O.IDEMPOTENT_WRITE,
    ),
    Kind.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE),
}
# Whoever may do one of these may look, too. Only permissions imply others: to deny READ denies nothing but READ.
_ALLOWED_BY = {
    Operation.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL)),
    Operation.DESCRIBE_CONFIGS: frozenset((_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL)),
}


class Acl(NamedTuple):
    """One rule, in the order of the columns of `kafka.acls`."""

    kind: Kind
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


_Decisions = dict[tuple[Operation, Kind, str], bool]


class Rules:
    """ACLs, arranged to be asked. What was answered once is remembered: rules do not change, others replace them."""

    def __init__(
        self, acls: Iterable[Acl] = (), *, superusers: Collection[str] = (), allows_unnamed: bool = False
    ) -> None:
        self._superusers = frozenset(superusers)
        self._allows_unnamed = allows_unnamed  # everybody may do what no ACL is about
        self._literal: defaultdict[tuple[Kind, str], list[Acl]] = defaultdict(list)
        self._prefixed: defaultdict[tuple[Kind, str], list[Acl]] = defaultdict(list)
        self._by_principal: defaultdict[str, list[Acl]] = defaultdict(list)
        for acl in acls:
            if acl.host != ANY_HOST:
                acl = acl._replace(host=host_of(acl.host))
            where = self._prefixed if acl.pattern is Pattern.PREFIXED else self._literal
            where[acl.kind, acl.name].append(acl)
            self._by_principal[acl.principal].append(acl)
        self._lengths = {
            kind: sorted({len(name) for of, name in self._prefixed if of is kind}) for kind in Kind
        }  # of the prefixes that there are: each is looked up, and never all of them
        self._decided: dict[tuple[str, str], _Decisions] = {}
        self._decisions = 0

    def is_superuser(self, principal: str) -> bool:
        """Tell whether a principal may do everything."""
        return principal in self._superusers

    def allows(self, principal: str, host: str, operation: Operation, kind: Kind, name: str) -> bool:
        """Tell whether a principal, written `User:alice`, may do this from an address."""
        decided = self._decided.get((principal, host))
        if decided is None:
            decided = self._decided[principal, host] = {}
        key = operation, kind, name
        if (known := decided.get(key)) is not None:
            return known
        decided[key] = decision = self._decide(principal, host, operation, kind, name)
        self._decisions += 1
        if self._decisions > _MOST_DECISIONS:  # clients choose the names: they must not fill the memory
            self._decided, self._decisions = {}, 0
        return decision

    def allows_some(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Tell whether there is any name for which `allows` says yes, as far as ACLs name it."""
        if principal in self._superusers:
            return True
        mine = self._mine(principal, host)
        denied = [acl for acl in mine if acl.kind is kind and _denies(acl, operation)]
        if any(acl.name == ANY_NAME and acl.pattern is Pattern.LITERAL for acl in denied):
            return False
        allowed = [acl for acl in mine if acl.kind is kind and _allows(acl, operation)]
        return any(not _covered(acl, denied) for acl in allowed) or (self._allows_unnamed and not denied)

    def _decide(self, principal: str, host: str, operation: Operation, kind: Kind, name: str) -> bool:
        if principal in self._superusers:
            return True
        is_allowed = is_named = False
        host = host_of(host)
        for acl in self._about(kind, name):
            is_named = True
            if acl.principal not in (principal, _anybody(principal)) or acl.host not in (host, ANY_HOST):
                continue
            if _denies(acl, operation):
                return False
            is_allowed = is_allowed or _allows(acl, operation)
        return is_allowed or (self._allows_unnamed and not is_named)

    def _about(self, kind: Kind, name: str) -> Iterator[Acl]:
        yield from self._literal.get((kind, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((kind, ANY_NAME), ())
        for length in self._lengths[kind]:
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())

    def _mine(self, principal: str, host: str) -> list[Acl]:
        host = host_of(host)
        return [
            acl
            for who in {principal, _anybody(principal)}
            for acl in self._by_principal.get(who, ())
            if acl.host in (host, ANY_HOST)
        ]


@lru_cache(maxsize=4096)
def host_of(address: str) -> str:
    """Return an address as all that mean the same are written: `::ffff:10.0.0.7` is `10.0.0.7`."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _anybody(principal: str) -> str:
    """The principal that stands for all of a kind: `User:*`."""
    return f"{principal.partition(':')[0]}:*"


def _denies(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)


def _allows(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.ALLOW and acl.operation in _ALLOWED_BY.get(
        operation, (operation, Operation.ALL)
    )


def _covered(acl: Acl, denied: Iterable[Acl]) -> bool:
    """Whether what an ACL allows is denied, all of it."""
    for other in denied:
        if other.pattern is Pattern.PREFIXED and acl.name.startswith(other.name) and not _is_any(acl):
            return True
        if (other.pattern, other.name) == (acl.pattern, acl.name):
            return True
    return False


def _is_any(acl: Acl) -> bool:
    return acl.pattern is Pattern.LITERAL and acl.name == ANY_NAME
