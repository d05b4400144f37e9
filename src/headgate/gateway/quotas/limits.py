"""Which limit counts for a client: the most exact one, as Kafka has it.

In this order: user and client id; user and any client id; user; any user and client id; any user and any client id; any
user; client id; any client id. A limit for anybody counts for each of them separately.

Specification: KIP-124 (requests), KIP-546 (entities); Apache Kafka documentation, "Quotas".
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["ANY", "Entity", "Limit", "Limits", "Metric"]

ANY = "*"  # everybody who has no limit of his own
_MOST_CLIENTS = 10_000


class Metric(enum.StrEnum):
    """What is limited."""

    PRODUCED = "producer_byte_rate"
    CONSUMED = "consumer_byte_rate"
    REQUESTS = "request_percentage"


class Entity(NamedTuple):
    """The user and client id that a limit is for; an empty text is no part of it."""

    user: str = ""
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, and who shares it: what this entity does is counted together."""

    rate: float  # bytes or seconds, a second
    shared_by: Entity


class Limits:
    """All limits, arranged to be asked."""

    def __init__(self, rows: Iterable[tuple[Any, Any, Any, Any]] = ()) -> None:
        """Take the rows of `kafka.quotas`. One that is not understood limits nobody, and is counted."""
        self._values: dict[tuple[Entity, Metric], float] = {}
        self.strange_rows = 0
        for user, client_id, key, value in rows:
            if key in set(Metric) and _is_rate(value) and isinstance(user, str) and isinstance(client_id, str):
                self._values[Entity(user, client_id), Metric(key)] = value
            else:
                self.strange_rows += 1
        self._known: dict[Entity, dict[Metric, Limit]] = {}

    def __bool__(self) -> bool:
        """Tell whether anybody is limited."""
        return bool(self._values)

    def of(self, user: str, client_id: str) -> dict[Metric, Limit]:
        """Return the limits of a client."""
        client = Entity(user, client_id)
        found = self._known.get(client)
        if found is None:
            if len(self._known) >= _MOST_CLIENTS:  # clients choose their ids
                self._known.clear()
            found = {metric: limit for metric in Metric if (limit := self._find(client, metric))}
            self._known[client] = found
        return found

    def _find(self, client: Entity, metric: Metric) -> Limit | None:
        for named in _by_exactness(client):
            value = self._values.get((named, metric))
            if value is not None:
                shared_by = Entity(client.user if named.user else "", client.client_id if named.client_id else "")
                return Limit(value / 100 if metric is Metric.REQUESTS else value, shared_by)
        return None


def _by_exactness(client: Entity) -> Iterable[Entity]:
    user, client_id = client
    for who in (user, ANY, ""):
        for which in (client_id, ANY, ""):
            if who or which:
                yield Entity(who, which)


def _is_rate(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value > 0
