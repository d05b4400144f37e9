"""What goes to the broker and comes from it, on any psycopg connection: in the transaction of the caller.

async with connection.transaction():
    await connection.execute("insert into users ...")
    await publish(connection, Message("user.created", {"name": "ann"}))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headgate.broker.install import DEFAULT_SCHEMA

__all__ = ["Event", "Message", "Subscription", "publish", "send", "subscribe"]


@dataclass(frozen=True, slots=True)
class Message:
    """Something to be published, now or when it is due."""

    topic: str
    payload: Any
    metadata: Any = None
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was published, as a handler gets it."""

    id: int
    topic: str
    payload: Any
    metadata: Any
    at: datetime
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a handler wants: a condition over `e` and `s`, with parameters. All events, unless it says otherwise."""

    condition: str = "true"
    params: Any = None
    expiry: timedelta | None = None

    @classmethod
    def to_topics(cls, *topics: str, expiry: timedelta | None = None) -> Subscription:
        """Events of these topics, which are looked up and not compared."""
        params = {"topics": sorted(set(topics))}
        return cls("s.params @> jsonb_build_object('topics', ARRAY[e.topic])", params, expiry)


async def publish(
    connection: psycopg.AsyncConnection[Any], *messages: Message, schema: str = DEFAULT_SCHEMA
) -> list[int]:
    """Publish in this order, as part of the transaction; the ids of those that are not for later."""
    await _schedule(connection, [message for message in messages if message.due_at], None, schema)
    now = [message for message in messages if not message.due_at]
    if not now:
        return []
    rows = await connection.execute(_call("select {}.publish_v1(%s, %s, %s)", schema), _columns(now))
    return [event_id async for (event_id,) in rows]


async def send(
    connection: psycopg.AsyncConnection[Any], subscription_id: int, *messages: Message, schema: str = DEFAULT_SCHEMA
) -> list[int]:
    """The same, to one subscription and no other."""
    await _schedule(connection, [message for message in messages if message.due_at], subscription_id, schema)
    now = [message for message in messages if not message.due_at]
    if not now:
        return []
    statement = _call("select {}.send_v1(%s, %s, %s, %s)", schema)
    rows = await connection.execute(statement, [[subscription_id] * len(now), *_columns(now)])
    return [event_id async for (event_id,) in rows]


async def subscribe(
    connection: psycopg.AsyncConnection[Any],
    group: str,
    subscription: Subscription,
    *,
    client: str | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> int:
    """Create or find a subscription of a group; its id."""
    statement = _call("select {}.subscribe_v1(%s, %s, %s, %s, %s)", schema)
    params = Jsonb(subscription.params or {})
    cursor = await connection.execute(statement, [group, subscription.condition, params, subscription.expiry, client])
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _schedule(
    connection: psycopg.AsyncConnection[Any], later: Sequence[Message], subscription_id: int | None, schema: str
) -> None:
    if later:
        statement = _call("select {}.schedule_v1(%s, %s, %s, %s, %s::int[])", schema)
        due_ats = [message.due_at for message in later]
        await connection.execute(statement, [due_ats, *_columns(later), [subscription_id] * len(later)])


def _columns(messages: Sequence[Message]) -> list[Any]:
    return [
        [message.topic for message in messages],
        [Jsonb(message.payload) for message in messages],
        [None if message.metadata is None else Jsonb(message.metadata) for message in messages],
    ]


def _call(statement: LiteralString, schema: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(schema))
