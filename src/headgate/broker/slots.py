"""Slots of a group: several programs read it side by side, and events with the same key stay in order.

A slot is a group of its own, `mailer/3-of-8`, with a cursor, a lease and an epoch as any other has. Its subscriptions
have the number of the slot in their parameters: the dispatcher sends each event to the slot that its key falls into.
Who lives and has the handlers is in the table `clients`, so every program finds out by itself which slots are its
share. If two of them differ about that for a moment, the lease decides, as it does for every group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.broker.database import Database, wait
from headgate.broker.messages import Subscription
from headgate.broker.reading import GroupReader
from headgate.model import StateError, UsageError

__all__ = ["SlotSharing", "Slots"]

SHARE_S = 5.0  # between looks at who is there
MOST = 256
PARAM = "headgate_slot"

# Living clients that have handlers of these subscriptions, and how many.
_MEMBERS = (
    "select c.id, n.handlers from {schema}.clients as c cross join lateral ("
    " select count(*) as handlers from jsonb_array_elements(c.handlers) as h where (h ->> 0)::int = any (%s)) as n"
    " where n.handlers > 0 and {schema}.is_alive(c.last_active_at) order by c.id"
)
# The group as it is read otherwise: as a whole, or in another number of slots.
_OTHERWISE = (
    "select s.group_id from {schema}.subscriptions as s where s.expired_at is null and (s.group_id = %s"
    " or starts_with(s.group_id, %s) and s.group_id ~ '/[0-9]+-of-[0-9]+$' and not s.group_id = any (%s)) limit 1"
)


@dataclass(frozen=True, slots=True)
class Slots:
    """How a group is shared: the number of slots, and where its key is in a payload, such as `customer.id`.

    Events without the key are in one slot together. The number is for good.
    """

    count: int
    key: str

    def __post_init__(self) -> None:
        if not 2 <= self.count <= MOST:
            raise UsageError(f"a group has 2 to {MOST} slots", remedy="give a few times as many as programs will run")
        if not all(self.key.split(".")) or "\0" in self.key:
            raise UsageError("the key of slots is empty", remedy="say where it is in a payload, like customer.id")

    def groups(self, name: str) -> list[str]:
        """The names of its slots, as groups."""
        return [f"{name}/{slot}-of-{self.count}" for slot in range(self.count)]

    def subscriptions(self, whole: Subscription) -> list[Subscription]:
        """What each slot subscribes to."""
        if whole.params is not None and not isinstance(whole.params, Mapping):
            raise UsageError("parameters of a group with slots are an object", remedy='give params like {"kind": "a"}')
        path = ", ".join("'" + word.replace("'", "''") + "'" for word in self.key.split("."))
        condition = (
            f"({whole.condition}) and slot_of(coalesce(e.payload #>> array[{path}]::text[], ''), {self.count})"
            f" = (s.params ->> '{PARAM}')::int"
        )
        return [
            Subscription(condition, {**(whole.params or {}), PARAM: slot}, whole.expiry) for slot in range(self.count)
        ]


class SlotSharing:
    """Has one client read its share of the slots, as others come and go."""

    def __init__(self, database: Database, client_id: str, readers: Sequence[GroupReader]) -> None:
        self._database, self._id, self._readers = database, client_id, readers
        self._changed = asyncio.Event()
        for reader in readers:
            reader.want(False)  # until we know who else is there

    def handlers_changed(self) -> None:
        self._changed.set()

    async def check(self, group: str) -> None:
        """Refuse to read a group in slots that is read otherwise: what waits there would be left behind."""
        ours = [reader.group for reader in self._readers]
        found = await self._database.fetch(_OTHERWISE, group, f"{group}/", ours)
        if found:
            raise StateError(
                f"the group {group} is not read in {len(ours)} slots: there is {found[0][0]}",
                remedy="give the program another group, or remove those subscriptions: headgate broker subscriptions",
            )

    async def run(self) -> None:
        """Look who is there, again and again."""
        while True:
            self._changed.clear()
            await self._share()
            await wait(self._changed, SHARE_S)

    async def _share(self) -> None:
        # All slots have the same handlers: one stands for all.
        subscriptions = [handler.subscription_id for handler in self._readers[0].handlers]
        found = await self._database.fetch(_MEMBERS, subscriptions)
        for reader, member in zip(self._readers, shares(found, len(self._readers)), strict=False):
            reader.want(member == self._id)


def shares(found: Iterable[tuple[str, int]], slots: int) -> list[str]:
    """Assign every slot to a reader: round-robin over those with the most handlers; empty without readers."""
    handlers = dict(found)
    most = max(handlers.values(), default=0)
    members = sorted(member for member, count in handlers.items() if count == most)
    return [members[slot % len(members)] for slot in range(slots)] if members else []
