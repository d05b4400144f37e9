"""The topics that members of consumer groups ask for, by name or by expression."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias
from uuid import UUID

from headgate.gateway.groups.consumer import Topics
from headgate.gateway.groups.store import GroupStore
from headgate.gateway.store import Store

__all__ = ["Sight", "Sights", "TopicIndex"]

_MAX_REGEXES = 1_000

Sight: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Of some topics, those that somebody may know of."""


class Sights:
    """Eyes of the expressions of groups: of the first member that brought one, until the group has it no more.

    All members share what an expression matches, as in Kafka. If it were that of whoever asks, members with different
    rights would make the group move its partitions with every heartbeat.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Sight]] = {}

    def of(self, group_id: str, regexes: Collection[str], asking: Sight) -> dict[str, Sight]:
        """Return whose sight counts for each expression of a group."""
        known = self._known.pop(group_id, {})
        found = {regex: known.get(regex, asking) for regex in regexes}
        if found:
            if len(self._known) >= _MAX_REGEXES:
                self._known.pop(next(iter(self._known)))  # the group that has asked longest ago
            self._known[group_id] = found
        return found


class TopicIndex:
    """Finds topics for state machines. What an expression matches is remembered until topics change."""

    def __init__(self, store: Store, groups: GroupStore, refresh_s: float) -> None:
        self._catalog = store.catalog
        self._groups = groups
        self._refresh_s = refresh_s
        self._matches: dict[str, tuple[float, frozenset[str]]] = {}
        store.on_notify("kafka_catalog", lambda _: self._matches.clear())

    async def topics(self, regexes: Mapping[str, Sight]) -> Topics:
        """Return what a group with these expressions may know of the log; of what matches, as far as each may see."""
        matches = {regex: frozenset(await sight(await self._match(regex))) for regex, sight in regexes.items()}
        return Topics(self._topic, matches)

    def _topic(self, name: str) -> tuple[UUID, int] | None:
        topic = self._catalog.get(name)
        return (topic.uuid, len(topic.parts)) if topic else None

    async def _match(self, regex: str) -> frozenset[str]:
        now = asyncio.get_running_loop().time()
        known = self._matches.get(regex)
        if known is not None and known[0] > now:
            return known[1]
        names = await self._groups.matches(regex)
        if len(self._matches) >= _MAX_REGEXES:
            self._matches.clear()
        self._matches[regex] = now + self._refresh_s, names
        return names
