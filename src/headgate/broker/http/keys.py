"""Order of each key: what was put off, and what has to wait for it.

An event whose request failed is held, by its key, until it is delivered or given up. Later events of the key are put
off behind it. The notes are in the database, written together with the cursor: whoever delivers next knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from headgate.broker.http.database import ServerDatabase
from headgate.broker.http.posting import Item

__all__ = ["HeldKeys"]

_FIND = "select key, event_id, due_at from {schema}.webhook_held where webhook_id = %s and key = any (%s)"
_HOLD = (
    "insert into {schema}.webhook_held (webhook_id, key, event_id, due_at)"
    " select %s, u.key, u.event_id, %s from unnest(%s::text[], %s::bigint[]) as u(key, event_id)"
    " on conflict (webhook_id, key, event_id) do update set due_at = excluded.due_at"
)
_RELEASE = "delete from {schema}.webhook_held where webhook_id = %s and key = any (%s) and event_id = any (%s)"


@dataclass(slots=True)
class HeldKeys:
    """The keys of one batch that something is held for. Only who holds the lease has one, so it is exact."""

    database: ServerDatabase
    webhook: int
    _due: dict[str, dict[int, datetime]] = field(default_factory=dict)

    async def find(self, items: Sequence[Item]) -> None:
        if keys := sorted({item.key for item in items if item.key is not None}):
            for key, event_id, due_at in await self.database.fetch(_FIND, self.webhook, keys):
                self._due.setdefault(key, {})[event_id] = due_at

    def blocks(self, item: Item) -> bool:
        """Whether something of its key that came before it has not come to an end."""
        return item.key is not None and any(event_id < item.id for event_id in self._due.get(item.key, ()))

    def delay_s(self, items: Sequence[Item]) -> float:
        """Until the last of those is due that they wait for."""
        due = [at for item in items for at in self._due.get(item.key or "", {}).values()]
        return max(0.0, (max(due) - datetime.now(UTC)).total_seconds()) + 0.001

    async def hold(self, connection: psycopg.AsyncConnection[Any], items: Sequence[Item], delay_s: float) -> None:
        due_at = datetime.now(UTC) + timedelta(seconds=delay_s)
        if held := _keyed(items):
            values = [self.webhook, due_at, [key for key, _ in held], [event_id for _, event_id in held]]
            await connection.execute(self.database.text(_HOLD), values)
        for key, event_id in held:
            self._due.setdefault(key, {})[event_id] = due_at

    async def release(self, connection: psycopg.AsyncConnection[Any], items: Sequence[Item]) -> None:
        """They are delivered, or given up."""
        held = [(key, event_id) for key, event_id in _keyed(items) if event_id in self._due.get(key, ())]
        if held:
            values = [self.webhook, [key for key, _ in held], [event_id for _, event_id in held]]
            await connection.execute(self.database.text(_RELEASE), values)
        for key, event_id in held:
            del self._due[key][event_id]


def _keyed(items: Sequence[Item]) -> list[tuple[str, int]]:
    return [(item.key, item.id) for item in items if item.key is not None]
