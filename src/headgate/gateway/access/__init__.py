"""What clients may do: ACLs, rights from PostgreSQL's roles, and what each API takes."""

from __future__ import annotations

from headgate.gateway.access.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Acl,
    Kind,
    Operation,
    Pattern,
    Permission,
    Rules,
    host_of,
)
from headgate.gateway.access.authority import ACCESS_CHANNEL, AclAuthority, Authority, Open
from headgate.gateway.access.filters import AclFilter, acl_of
from headgate.gateway.access.guard import REFUSED_AS, Guard, refusal
from headgate.gateway.access.rights import RIGHTS, Need, Rights
from headgate.gateway.access.roles import RoleAuthority
from headgate.gateway.access.store import AclStore

__all__ = [
    "ACCESS_CHANNEL",
    "CLUSTER_NAME",
    "OPERATIONS_OF",
    "REFUSED_AS",
    "RIGHTS",
    "Acl",
    "AclAuthority",
    "AclFilter",
    "AclStore",
    "Authority",
    "Guard",
    "Kind",
    "Need",
    "Open",
    "Operation",
    "Pattern",
    "Permission",
    "Rights",
    "RoleAuthority",
    "Rules",
    "acl_of",
    "host_of",
    "refusal",
]
