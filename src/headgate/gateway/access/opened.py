"""The authority that a gateway is told to ask."""

from __future__ import annotations

from headgate.gateway.access.authority import ACCESS_CHANNEL, AclAuthority, Authority, Open
from headgate.gateway.access.roles import RoleAuthority
from headgate.gateway.options import GatewayOptions
from headgate.gateway.store import Store

__all__ = ["open_authority"]


async def open_authority(options: GatewayOptions, store: Store) -> Authority:
    """Return who decides what clients may do; it hears of changes while the store is open."""
    if options.authorization == "none":
        return Open()
    if options.authorization == "roles":
        return RoleAuthority(store.pool, options.superusers)
    acls = AclAuthority(store.pool, options.superusers, allows_unnamed=options.allow_everyone_if_no_acl)
    await acls.refresh()
    store.on_poll(acls.refresh_on)
    store.on_notify(ACCESS_CHANNEL, lambda _: acls.doubt())
    return acls
