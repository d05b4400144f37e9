"""One way to speak to the broker and to the model of the one that it replaces, for stories that are told to both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
from psycopg.types.json import Jsonb

__all__ = ["BY_TOPIC", "Broker", "Headgate", "Original", "Read", "drain", "topic_of"]

BY_TOPIC = "s.params @> jsonb_build_object('topic', e.topic)"


@dataclass(frozen=True)
class Read:
    """An event, as a group got it."""

    id: Any
    topic: str
    payload: Any
    subscriptions: tuple[Any, ...]
    cursor: Any


class Broker(Protocol):
    """What both can do."""

    db: psycopg.Connection[Any]

    def on(self, other: psycopg.Connection[Any]) -> Broker: ...
    def subscribe(
        self, group: str, condition: str = "true", params: dict[str, Any] | None = None, expiry: str | None = None
    ) -> Any: ...
    def publish(self, *events: tuple[str, Any]) -> list[Any]: ...
    def schedule(self, topic: str, payload: Any, delay: str) -> None: ...
    def poll(self) -> int: ...
    def read(self, group: str, chunk: int = 1000, cursor: Any = None, peek: bool = False) -> list[Read]: ...
    def ack(self, group: str, cursor: Any, release: bool = False) -> None: ...
    def cursor(self, group: str) -> Any: ...
    def maintain(self, after: str = "0 s") -> None: ...


class Headgate:
    """Ours."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self.db = db

    def on(self, other: psycopg.Connection[Any]) -> Headgate:
        return Headgate(other)

    def subscribe(
        self, group: str, condition: str = "true", params: dict[str, Any] | None = None, expiry: str | None = None
    ) -> Any:
        return _one(
            self.db,
            "select headgate.subscribe(%s, %s, %s, %s::interval)",
            group,
            condition,
            Jsonb(params or {}),
            expiry,
        )

    def publish(self, *events: tuple[str, Any]) -> list[Any]:
        rows = self.db.execute(
            "select headgate.publish_many(%s, %s)",
            [[topic for topic, _ in events], [Jsonb(value) for _, value in events]],
        )
        return [event_id for (event_id,) in rows]

    def schedule(self, topic: str, payload: Any, delay: str) -> None:
        self.db.execute(
            "select headgate.publish(%s, %s, due_at => now() + %s::interval)", [topic, Jsonb(payload), delay]
        )

    def poll(self) -> int:
        delivered = 0
        while True:
            row = self.db.execute("select delivered, more from headgate.poll_for_events_v1()").fetchone()
            assert row is not None
            delivered += row[0]
            if not row[1]:
                return int(delivered)

    def read(self, group: str, chunk: int = 1000, cursor: Any = None, peek: bool = False) -> list[Read]:
        rows = self.db.execute(
            "select id, topic, payload, subscription_ids, next_cursor from headgate.read_next_events(%s, %s, %s, %s)",
            [group, cursor, chunk, peek],
        )
        return [Read(number, topic, payload, tuple(subs or ()), after) for number, topic, payload, subs, after in rows]

    def ack(self, group: str, cursor: Any, release: bool = False) -> None:
        self.db.execute("select headgate.set_group_cursor(%s, %s, %s)", [group, cursor, release])

    def cursor(self, group: str) -> Any:
        return _one(self.db, "select cursor from headgate.group_status where group_id = %s", group)

    def maintain(self, after: str = "0 s") -> None:
        # Twice: what the first closes, the second may drop.
        for _ in range(2):
            self.db.execute("select headgate.maintain(now() + %s::interval)", [after])


class Original:
    """The model in `original.sql`."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self.db = db

    def on(self, other: psycopg.Connection[Any]) -> Original:
        return Original(other)

    def subscribe(
        self, group: str, condition: str = "true", params: dict[str, Any] | None = None, expiry: str | None = None
    ) -> Any:
        return _one(
            self.db,
            "select original.assert_subscription(%s, %s, %s, %s::interval)",
            group,
            condition,
            Jsonb(params or {}),
            expiry,
        )

    def publish(self, *events: tuple[str, Any]) -> list[Any]:
        rows = self.db.execute(
            "insert into original.events (topic, payload) select * from unnest(%s::text[], %s::jsonb[]) returning id",
            [[topic for topic, _ in events], [Jsonb(value) for _, value in events]],
        )
        return [event_id for (event_id,) in rows]

    def schedule(self, topic: str, payload: Any, delay: str) -> None:
        self.db.execute(
            "insert into original.events (id, topic, payload)"
            " values (original.create_event_id(now() + %s::interval, (random() * 268435448)::bigint), %s, %s)",
            [delay, topic, Jsonb(payload)],
        )

    def poll(self) -> int:
        return int(_one(self.db, "select original.poll_for_events()"))

    def read(self, group: str, chunk: int = 1000, cursor: Any = None, peek: bool = False) -> list[Read]:
        rows = self.db.execute("select * from original.read_next_events(%s, %s, %s, %s)", [group, cursor, chunk, peek])
        return [Read(text, topic, payload, tuple(subs), after) for text, topic, payload, subs, after in rows]

    def ack(self, group: str, cursor: Any, release: bool = False) -> None:
        self.db.execute("select original.set_group_cursor(%s, %s, %s)", [group, cursor, release])

    def cursor(self, group: str) -> Any:
        return _one(self.db, "select last_read_event_id from original.subscription_groups where id = %s", group)

    def maintain(self, after: str = "0 s") -> None:
        self.db.execute("select original.maintain(now() + %s::interval)", [after])


def drain(broker: Broker, group: str, chunk: int = 1000) -> list[Read]:
    """All that is waiting, read and acknowledged a chunk at a time."""
    got: list[Read] = []
    while events := broker.read(group, chunk):
        got += events
        broker.ack(group, events[0].cursor)
    return got


def topic_of(number: int) -> str:
    return f"topic-{number}"


def _one(db: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    row = db.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]
