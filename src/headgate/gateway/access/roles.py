"""Rights from PostgreSQL: what is granted to the role with the client's name counts in the gateway, too.

A role that owns the schema `kafka`, or is a member of one that does, may do everything. Any other may read a topic, and
look at it, if it may `select` from the topic's view (`kafka.share_topic`) or from `kafka.messages`; it may write if it
may `insert` there, or into `kafka.inbox`. A group or a transactional id belongs to the role that its name begins with:
`billing` and `billing.eu` are those of the role `billing` and of its members.

GRANT tells nobody, so what was read counts for `STALE_S` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from headgate.gateway.access.acls import Kind, Operation
from headgate.gateway.access.authority import STALE_S
from headgate.gateway.access.store import Pool, sql
from headgate.gateway.principal import ANONYMOUS, Principal

__all__ = ["RoleAuthority"]

_READS = frozenset((Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS))
_WRITES = frozenset((Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS))
_OWN_NAMES = frozenset((Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE))
_MOST_ROLES, _MOST_NAMES = 10_000, 10_000  # names are chosen by clients


@dataclass(slots=True)
class _Granted:
    """What is known of one role, and since when."""

    read_at: float
    is_owner: bool = False
    writes_somewhere: bool = False
    topics: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    names: dict[str, bool] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_read: bool = False


class RoleAuthority:
    """Decides by the grants of PostgreSQL."""

    is_open = False
    strange_rows = 0

    def __init__(
        self, pool: Pool, superusers: Collection[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._superusers = frozenset(superusers)
        self._clock = clock
        self._roles: dict[str, _Granted] = {}

    @property
    def state(self) -> object:
        """Return the time, in steps of what an answer counts for."""
        return int(self._clock() / STALE_S)

    async def allowed(
        self, who: Principal, host: str, operation: Operation, kind: Kind, names: Collection[str]
    ) -> Collection[str]:
        """Return the names for which a client may do something, from whatever address."""
        if str(who) in self._superusers:
            return names
        if kind is Kind.CLUSTER:
            return names if (await self._granted(who)).is_owner else ()
        known = {name for name in names if "\0" not in name}  # PostgreSQL has no such text
        if kind is Kind.TOPIC:
            granted = await self._granted(who, topics=known)
            return known if granted.is_owner else {each for each in known if _may(granted.topics[each], operation)}
        granted = await self._granted(who, names=known)
        if granted.is_owner:
            return known
        return {each for each in known if granted.names[each] and operation in _OWN_NAMES}

    async def writes_somewhere(self, who: Principal, host: str) -> bool:
        """Tell whether there may be a topic to which a client may write."""
        return str(who) in self._superusers or (await self._granted(who)).writes_somewhere

    async def _granted(self, who: Principal, topics: Collection[str] = (), names: Collection[str] = ()) -> _Granted:
        """What is granted to a role, these names included."""
        granted = self._known(who.name)
        async with granted.reading:
            new_topics = [each for each in topics if each not in granted.topics]
            new_names = [each for each in names if each not in granted.names]
            if not granted.is_read or new_topics or new_names:
                await self._read(who, granted, new_topics, new_names)
        return granted

    def _known(self, role: str) -> _Granted:
        granted = self._roles.get(role)
        now = self._clock()
        if granted is None or now - granted.read_at > STALE_S or len(granted.topics) + len(granted.names) > _MOST_NAMES:
            if len(self._roles) >= _MOST_ROLES:
                self._roles.clear()
            granted = self._roles[role] = _Granted(now)
        return granted

    async def _read(self, who: Principal, granted: _Granted, topics: list[str], names: list[str]) -> None:
        # Who has not logged in is no role, whatever a role may be called.
        is_role = who.kind == "User" and who != ANONYMOUS and "\0" not in who.name
        rows: list[tuple[str, str, bool, bool]] = []
        if is_role:
            async with self._pool.connection() as connection:
                rows = await (await connection.execute(sql("rights_of"), [who.name, topics, names])).fetchall()
        granted.topics.update(dict.fromkeys(topics, (False, False)))
        granted.names.update(dict.fromkeys(names, False))
        for kind, name, may_read, may_write in rows:
            if kind == "all":
                granted.is_owner = may_read and may_write
            elif kind == "some":
                granted.writes_somewhere = may_write
            elif kind == "topic":
                granted.topics[name] = may_read, may_write
            elif kind == "name":
                granted.names[name] = may_read and may_write
        granted.is_read = True


def _may(rights: tuple[bool, bool], operation: Operation) -> bool:
    may_read, may_write = rights
    return (may_read and operation in _READS) or (may_write and operation in _WRITES)
