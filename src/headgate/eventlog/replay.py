"""Feeds a listener the past, from memory or from the disk, as fast as its connection takes it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial

from headgate.eventlog.connection import Connection
from headgate.eventlog.groups import Group, framed
from headgate.eventlog.reader import LogCursor
from headgate.eventlog.tail import Tail
from headgate.eventlog.threads import in_thread

__all__ = ["LostError", "replay"]


class LostError(Exception):
    """What a listener was to read next has been removed."""


async def replay(connection: Connection, tail: Tail, pool: Executor, chunk: int) -> None:
    """Write what lies between the listener and the tail. Returns where both are at the same place, or it has left."""
    while connection.is_open and connection.after < tail.position:
        records = tail.recent(connection.after, chunk)
        if records is None:
            await _from_disk(connection, tail, pool, chunk)
            continue
        group = _group_of(connection)
        connection.after = records[-1].seq if records else tail.position
        if data := group.joined(framed(group.door, group.framing, records)):
            connection.transport.write(data)
        await asyncio.sleep(0)
        await connection.writable()


def _group_of(connection: Connection) -> Group:
    """A listener by itself, with what it wants at this moment."""
    return Group(connection.door, connection.framing, connection.wanted)


async def _from_disk(connection: Connection, tail: Tail, pool: Executor, chunk: int) -> None:
    """Until memory has the rest."""
    with tail.reader.cursor(connection.after) as cursor:
        while connection.is_open and tail.recent(connection.after, 0) is None:
            group = _group_of(connection)
            data = await in_thread(pool, partial(_replayed, cursor, group, chunk, tail.position))
            if cursor.has_skipped:
                raise LostError
            for damage in cursor.take_damage():
                connection.inform("DamagedLog", damage.text)
            connection.after = cursor.after
            if data and connection.is_open:
                connection.transport.write(data)
            await connection.writable()


def _replayed(cursor: LogCursor, group: Group, chunk: int, until: int) -> bytes:
    return group.joined(framed(group.door, group.framing, cursor.read(chunk, until)))
