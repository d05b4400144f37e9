"""Publishing as part of the caller's transaction: it commits, and the event is delivered, or neither happens.

    async with connection.transaction():
        await connection.execute("insert into users ...")
        await publish(connection, Message("user.created", {"name": "ann"}))

`publish` takes an async connection of psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy. `publish_sync`
takes a connection of psycopg, a Session or Connection of SQLAlchemy, Django's `connection`, or any connection of the
Python database API whose parameters are written as %s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from headgate.broker.install import DEFAULT_SCHEMA
from headgate.broker.messages import Message, Subscription
from headgate.broker.payloads import as_json
from headgate.broker.tracing import with_context
from headgate.model import UsageError

__all__ = [
    "Encoded",
    "check_schema",
    "encode",
    "publish",
    "publish_encoded",
    "publish_sync",
    "send",
    "send_sync",
    "subscribe",
]

# PostgreSQL takes at most 256 MB of elements in one array.
_CALL_CHARS = 32 * 1024 * 1024

# All messages are one text parameter: every driver can pass that, and it is twice as fast as an array of each column.
_FROM = "from jsonb_array_elements(cast({messages} as jsonb)) with ordinality as m(x, n)"
_COLUMNS = (
    "array_agg(x ->> 'topic' order by n), array_agg(x -> 'payload' order by n),"
    " array_agg(nullif(x -> 'metadata', 'null') order by n)"
)
_TO = "array_agg(cast(x ->> 'to' as int) order by n)"
_PUBLISH = f"select {{schema}}.publish_v1({_COLUMNS}) {_FROM}"
_SEND = f"select {{schema}}.send_v1({_TO}, {_COLUMNS}) {_FROM}"
_SCHEDULE = (
    f"select {{schema}}.schedule_v1(array_agg(cast(x ->> 'due_at' as timestamptz) order by n),"
    f" {_COLUMNS}, {_TO}) {_FROM}"
)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message as it goes to the server."""

    text: str
    later: bool
    direct: bool


async def publish(where: Any, *messages: Message, schema: str = DEFAULT_SCHEMA) -> list[int]:
    """Publish `messages` in this order, in the caller's transaction; return the ids of those that are not scheduled."""
    return await publish_encoded(where, [encode(message) for message in messages], schema)


async def send(where: Any, subscription_id: int, *messages: Message, schema: str = DEFAULT_SCHEMA) -> list[int]:
    """Publish to one subscription, whatever its condition, in the caller's transaction; return the event ids."""
    return await publish_encoded(where, [encode(message, subscription_id) for message in messages], schema)


def publish_sync(where: Any, *messages: Message, schema: str = DEFAULT_SCHEMA) -> list[int]:
    """`publish` for connections and sessions that are not async."""
    return _publish_encoded_sync(where, [encode(message) for message in messages], schema)


def send_sync(where: Any, subscription_id: int, *messages: Message, schema: str = DEFAULT_SCHEMA) -> list[int]:
    """`send` for connections and sessions that are not async."""
    return _publish_encoded_sync(where, [encode(message, subscription_id) for message in messages], schema)


async def subscribe(
    connection: psycopg.AsyncConnection[Any],
    group: str,
    subscription: Subscription,
    *,
    client: str | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> int:
    """Create or find a subscription of a group; its id."""
    statement = f"select {_checked(schema)}.subscribe_v1(%s, %s, %s, %s, %s)"
    params = Jsonb(subscription.params or {})
    values = [group, subscription.condition, params, subscription.expiry, client]
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement.encode(), values)
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def encode(message: Message, subscription_id: int | None = None) -> Encoded:
    """A message as JSON, with the current trace in its metadata."""
    fields = {
        "topic": message.topic,
        "payload": message.payload,
        "metadata": with_context(message.metadata),
        "to": subscription_id,
        "due_at": message.due_at and message.due_at.isoformat(),
    }
    text = as_json(fields, f"a message to {message.topic}")
    return Encoded(text, message.due_at is not None, subscription_id is not None)


async def publish_encoded(where: Any, messages: Sequence[Encoded], schema: str) -> list[int]:
    """Publish what `encode` made."""
    ids: list[int] = []
    for statement, text, has_ids in _calls(messages, _checked(schema)):
        rows = await _execute(where, statement, text)
        ids += [row[0] for row in rows if has_ids]
    return ids


def _publish_encoded_sync(where: Any, messages: Sequence[Encoded], schema: str) -> list[int]:
    ids: list[int] = []
    for statement, text, has_ids in _calls(messages, _checked(schema)):
        rows = _execute_sync(where, statement, text)
        ids += [row[0] for row in rows if has_ids]
    return ids


def _calls(messages: Sequence[Encoded], schema: str) -> Iterator[tuple[str, str, bool]]:
    """Statements, what they publish, and whether their rows are ids of events."""
    for chunk in _chunks([message for message in messages if message.later]):
        yield _SCHEDULE.replace("{schema}", schema), chunk, False
    for chunk in _chunks([message for message in messages if not message.later]):
        yield (_SEND if messages[0].direct else _PUBLISH).replace("{schema}", schema), chunk, True


def _chunks(messages: Sequence[Encoded]) -> Iterator[str]:
    chunk: list[str] = []
    chars = 0
    for message in messages:
        if chunk and chars + len(message.text) > _CALL_CHARS:
            yield f"[{','.join(chunk)}]"
            chunk, chars = [], 0
        chunk.append(message.text)
        chars += len(message.text)
    if chunk:
        yield f"[{','.join(chunk)}]"


async def _execute(where: Any, statement: str, text: str) -> Sequence[Any]:
    if isinstance(where, psycopg.AsyncConnection):
        async with where.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement.replace("{messages}", "%s").encode(), [text])
            return await cursor.fetchall()
    if _is_sqlalchemy(where) and hasattr(where, "run_sync"):
        return (await where.execute(*_for_sqlalchemy(statement, text))).all()  # type: ignore[no-any-return]
    raise _refused(where, "publish", "publish_sync")


def _execute_sync(where: Any, statement: str, text: str) -> Sequence[Any]:
    if _is_sqlalchemy(where) and hasattr(where, "execute") and not hasattr(where, "run_sync"):
        return where.execute(*_for_sqlalchemy(statement, text)).all()  # type: ignore[no-any-return]
    if isinstance(where, psycopg.AsyncConnection) or not hasattr(where, "cursor"):
        raise _refused(where, "publish_sync", "publish")
    # psycopg may have been told to make rows of another kind; others make tuples.
    options = {"row_factory": tuple_row} if isinstance(where, psycopg.Connection) else {}
    with where.cursor(**options) as cursor:
        cursor.execute(statement.replace("{messages}", "%s"), [text])
        return cursor.fetchall()  # type: ignore[no-any-return]


def _is_sqlalchemy(where: Any) -> bool:
    # Also scoped sessions and classes that inherit from a session; nothing is imported for those who do not use it.
    return any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(where).__mro__)


def _for_sqlalchemy(statement: str, text: str) -> tuple[Any, dict[str, str]]:
    import sqlalchemy

    return sqlalchemy.text(statement.replace("{messages}", ":messages")), {"messages": text}


def _refused(where: Any, name: str, other: str) -> UsageError:
    kind = type(where)
    return UsageError(
        f"{name} does not know how to use a {kind.__module__}.{kind.__qualname__}",
        remedy=f"give it a connection or a session; {other} is for those that {name} is not for",
    )


def check_schema(schema: str) -> str:
    """A name that statements may have in them."""
    if not _SCHEMA.fullmatch(schema):
        raise UsageError(f"{schema!r} cannot be the broker's schema", remedy="give the name that it was installed with")
    return schema


def _checked(schema: str) -> str:
    """The name of a schema, as statements have it."""
    return f'"{check_schema(schema)}"'
