"""The topics that members of consumer groups ask for, by name or by expression."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

from headgate.gateway.groups.consumer import Topics
from headgate.gateway.groups.store import GroupStore
from headgate.gateway.store import Store

__all__ = ["TopicIndex"]

_MAX_REGEXES = 1_000


class TopicIndex:
    """Finds topics for state machines. What an expression matches is remembered until topics change."""

    def __init__(self, store: Store, groups: GroupStore, refresh_s: float) -> None:
        self._catalog = store.catalog
        self._groups = groups
        self._refresh_s = refresh_s
        self._matches: dict[str, tuple[float, frozenset[str]]] = {}
        store.on_notify("kafka_catalog", lambda _: self._matches.clear())

    async def topics(self, regexes: Iterable[str]) -> Topics:
        """Return what a group with these expressions may know of the log."""
        return Topics(self._topic, {regex: await self._match(regex) for regex in regexes})

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
