"""Retention: partitions begin later, segments are closed, and those of which nothing is alive are dropped.

Rows are hardly ever deleted: a segment is a table of its own, and goes as a whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import psycopg
from psycopg import sql as composed

from headgate.commitlog.configs import long_of
from headgate.gateway.store.settings import StoreSettings
from headgate.gateway.store.statements import sql

__all__ = ["Moved", "retain"]

logger = logging.getLogger(__name__)

# A reader with a long transaction holds this up; what is left over is finished next time.
_DETACH_TIMEOUT_MS = 10_000

Moved = Callable[[int, int, int], None]  # part_id, next offset, log start offset


async def retain(connection: psycopg.AsyncConnection, settings: StoreSettings, on_moved: Moved) -> None:
    """One round: expire, rotate, drop."""
    await _expire(connection, on_moved)
    cursor = await connection.execute(sql("full_classes"), [settings.segment_bytes, settings.least_segment_s])
    for (class_id,) in await cursor.fetchall():
        await connection.execute(sql("open_segment"), [class_id])
    cursor = await connection.execute(sql("dead_spans"))
    for span in await cursor.fetchall():
        await connection.execute(sql("bury"), span)
    await _drop(connection)
    await _thin(connection)
    await connection.execute(sql("forget_producers"))
    await connection.execute(sql("forget_aborted"))
    await connection.execute(sql("forget_transactional_ids"))
    await connection.execute(sql("forget_rejected"))


async def _expire(connection: psycopg.AsyncConnection, on_moved: Moved) -> None:
    defaults = [long_of({}, "retention.ms"), long_of({}, "retention.bytes")]
    cursor = await connection.execute(sql("expired"), [time.time_ns() // 1_000_000, *defaults])
    for part_id, new_start in await cursor.fetchall():
        row = await (await connection.execute(sql("delete_records"), [part_id, new_start])).fetchone()
        if row is not None and row[0] is not None:
            log_start_offset, next_offset = row
            on_moved(part_id, next_offset, log_start_offset)


async def _thin(connection: psycopg.AsyncConnection) -> None:
    """Segments that a few records keep from being dropped give back the space of all others.

    Readers of such a segment wait while what is left of it is copied. A lock that is not to be had at once is left for
    the next time, rather than have others queue behind it.
    """
    for segment_id, share in await (await connection.execute(sql("sparse_segments"))).fetchall():
        await connection.execute(sql("thin"), [segment_id, share])
        await connection.execute(b"select set_config('lock_timeout', '500ms', false)")
        try:
            table = composed.Identifier("kafka", f"segment_{segment_id}")
            await connection.execute(composed.SQL("vacuum (full) {}").format(table))
        except psycopg.errors.LockNotAvailable:
            await connection.execute(sql("thin"), [segment_id, 0.0])
            logger.info("a segment is being read, and will be made smaller later")
        finally:
            if not connection.broken:
                await connection.execute(b"reset lock_timeout")


async def _drop(connection: psycopg.AsyncConnection) -> None:
    """Detach first, without holding up anybody; a table that is on its own can be dropped at any time."""
    await connection.execute(b"select set_config('statement_timeout', %s, false)", [str(_DETACH_TIMEOUT_MS)])
    try:
        for segment_id, state in await (await connection.execute(sql("dead_segments"))).fetchall():
            table = composed.Identifier("kafka", f"segment_{segment_id}")
            if state != "detached":
                how = composed.SQL("finalize" if state == "pending" else "concurrently")
                statement = composed.SQL("alter table kafka.batches detach partition {} {}")
                await connection.execute(statement.format(table, how))
            await connection.execute(composed.SQL("drop table {}").format(table))
            await connection.execute(sql("forget_segment"), [segment_id])
    except psycopg.errors.QueryCanceled:
        logger.info("a segment is still being read, and will be dropped later")
    finally:
        if not connection.broken:
            await connection.execute(b"reset statement_timeout")
