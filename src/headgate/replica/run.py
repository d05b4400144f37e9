"""Keeps a replica: snapshots into new tables, then every transaction whole, with the position in the same commit.

Several transactions of the source may share one commit of the target, never a part of one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from headgate.consume import (
    CaughtUp,
    Change,
    Changes,
    Consumer,
    Schema,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotFailed,
    SnapshotRows,
    Step,
    TableGone,
    TableName,
)
from headgate.replica.fold import Plan, Row
from headgate.replica.shapes import can_reshape
from headgate.replica.target import TableFailed, Target
from headgate.runtime.failpoints import failpoint

__all__ = ["Progress", "Replica", "stop"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_COMMIT_CHANGES = 20_000
_COMMIT_S = 0.25


@dataclass
class Progress:
    """What has been done so far, for whoever shows it."""

    table: str = ""  # whose snapshot is being loaded; empty while following
    snapshot_rows: int = 0
    snapshot_total: int = 0
    changes: int = 0
    commits: int = 0
    caught_up: bool = False


async def stop(task: asyncio.Task[None]) -> None:
    """End a running replica, after the commit that is under way; an error that it ended with is raised.

    Cancelled more than once, as one may be lost: Python 3.11's `wait_for` drops one that comes with its result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1.0)
    if not task.cancelled():
        task.result()


class Replica:
    """One target and the tables it copies. `repair` are tables to begin anew; `on_dropped`: those published no more."""

    def __init__(
        self,
        target: Target,
        nats_url: str,
        tables: Sequence[str] | Literal["*"],
        *,
        cdc_stream: str = "CDC",
        repair: Sequence[str] = (),
        on_dropped: Literal["keep", "drop"] = "keep",
        on_progress: Callable[[Progress], None] = lambda _: None,
        **consumer_options: Any,
    ) -> None:
        self.progress = Progress()
        self.aside: dict[TableName, str] = {}  # tables that the target cannot take, and why
        self._target = target
        self._nats_url = nats_url
        self._tables = tables
        self._on_dropped = on_dropped
        self._consumer_options = {"cdc_stream": cdc_stream, "new_snapshots": repair, **consumer_options}
        self._on_progress = on_progress
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replica")
        self._schemas: dict[TableName, Schema] = {}
        self._left_out: set[TableName] = set()
        self._plan = Plan()
        self._is_open = False  # a transaction of the target
        self._is_parted = False  # a part of a transaction was taken in, and its rest not yet
        self._since = 0.0
        self._saved: dict[str, Any] | None = None

    async def run(self, *, once: bool = False) -> None:
        """For ever, or until all that is there now has been applied. `stop` ends its task; nothing is left half."""
        try:
            await self._do(self._target.claim)
            again = set(await self._do(self._target.aside))  # perhaps somebody has mended what was wrong
            while not await self._follow(once, again):
                again = set()
        finally:
            await self._do(self._target.rollback)
            self._thread.shutdown()

    async def _follow(self, once: bool, again: set[TableName]) -> bool:
        """Until it is done, or a table has to be set aside: then everything since the last commit is read again."""
        self._plan, self._is_open, self._is_parted = Plan(), False, False
        try:
            await self._follow_all(once, again)
        except TableFailed as failed:
            await self._do(self._set_aside, failed)
            return False
        except SnapshotFailed as failed:
            await self._do(self._set_aside, TableFailed(failed.table, failed))
            return False
        return True

    def _set_aside(self, failed: TableFailed) -> None:
        self._target.rollback()
        logger.error("%s: it is set aside, and others go on: %s", failed.table, failed.reason)
        self._in_one(lambda: self._target.set_aside(failed.table, failed.reason))
        self.aside[failed.table] = failed.reason

    async def _follow_all(self, once: bool, again: set[TableName]) -> None:
        self._saved, self._schemas = await self._do(self._target.load)
        gone = await self._do(self._target.gone)
        options = dict(self._consumer_options)
        options["new_snapshots"] = [*options["new_snapshots"], *map(str, again)]
        consumer = Consumer(
            self._nats_url,
            self._tables,
            position=self._saved,
            name="headgate-replica",
            may_be_gone=[*gone, *self._schemas, *again],
            leave_out=list(self.aside),
            **options,
        )
        async with consumer:
            async for step in consumer.steps():
                await self._take(step, consumer)
                if once and isinstance(step, CaughtUp):
                    return

    async def _take(self, step: Step, consumer: Consumer) -> None:
        if isinstance(step, Changes):
            await self._take_changes(step, consumer)
        elif isinstance(step, SnapshotRows):
            await self._add_rows(step)
        elif isinstance(step, CaughtUp):
            await self._commit(consumer)
            self._tell(caught_up=True)
        elif isinstance(step, SnapshotBegin):
            await self._begin_snapshot(step, consumer)
        elif isinstance(step, TableGone):
            await self._let_go(step.table, consumer)
        else:
            await self._end_snapshot(step, consumer)

    async def _take_changes(self, step: Changes, consumer: Consumer) -> None:
        if not step.ends and not self._is_parted:
            await self._commit(consumer)  # what is whole, so that it does not depend on the rest of this one
        self._is_parted = not step.ends
        for change in step.changes:
            self._add(change, consumer)
        if self._is_parted:
            await self._do(self._apply)
        elif self._plan.change_count >= _COMMIT_CHANGES or time.monotonic() - self._since > _COMMIT_S:
            await self._commit(consumer)

    def _add(self, change: Change, consumer: Consumer) -> None:
        if change.schema is None or change.table is None:
            return  # the bridge tells of a gap; the tables it concerns begin anew
        name = TableName(change.schema, change.table)
        if name in self._left_out:
            return
        if change.operation != "SCHEMA":
            with self._target.about(self._schemas[name]):
                self._plan.add(self._schemas[name], change)
            return
        old, new = self._schemas[name], Schema.read(change.data)
        if can_reshape(old, new):
            self._plan.reshape(old, new)
            self._schemas[name] = new
        else:
            logger.info("%s: its shape has changed in a way that needs its rows again", name)
            self._left_out.add(name)
            consumer.resnapshot(name)

    def _apply(self) -> None:
        plan, self._plan = self._plan, Plan()
        if not self._is_open:
            self._target.begin()
            self._is_open = True
        self._target.apply(plan.items)
        self.progress.changes += plan.change_count

    async def _commit(self, consumer: Consumer) -> None:
        """All that was taken in; the consumer stands behind a whole transaction now."""
        position = consumer.position()
        if position == self._saved and not self._plan.items and not self._is_open:
            return
        await self._do(self._apply_and_save, position)
        self._since = time.monotonic()
        self._tell(caught_up=False)

    def _apply_and_save(self, position: dict[str, Any]) -> None:
        self._apply()
        self._target.save(position)
        failpoint("replica.before_commit")
        self._target.commit()
        failpoint("replica.after_commit")
        self._is_open = False
        self._saved = position
        self.progress.commits += 1

    async def _begin_snapshot(self, step: SnapshotBegin, consumer: Consumer) -> None:
        if self._is_parted:
            await self._do(self._abandon)
        else:
            await self._commit(consumer)
        await self._do(self._target.begin_snapshot, step.schema)
        self.progress.snapshot_rows, self.progress.snapshot_total = 0, step.info.row_count
        self.progress.table = str(step.schema.name)
        self._tell(caught_up=False)

    def _abandon(self) -> None:
        """A part of a transaction whose rest the stream has lost: all tables that it could touch begin anew."""
        self._plan, self._is_parted = Plan(), False
        if self._is_open:
            self._target.rollback()
            self._is_open = False

    async def _let_go(self, table: TableName, consumer: Consumer) -> None:
        """A table that is published no more: kept as it was last, or dropped."""
        if table not in self._schemas:
            return
        await self._commit(consumer)
        if self._on_dropped == "keep":
            logger.warning("%s: it is published no more; its rows stay as they are", table)
            await self._do(self._in_one, lambda: self._target.note_gone(table))
            return
        logger.warning("%s: it is published no more, and is dropped here", table)
        consumer.leave(table)
        del self._schemas[table]
        position = consumer.position()

        def drop() -> None:
            self._target.drop_table(table)
            self._target.save(position)

        await self._do(self._in_one, drop)
        self._saved = position

    def _in_one(self, work: Callable[[], None]) -> None:
        self._target.begin()
        work()
        self._target.commit()

    async def _add_rows(self, step: SnapshotRows) -> None:
        names = [column.name for column in step.schema.sent]
        rows: list[Row] = [
            tuple(row.values()) if len(row) == len(names) else tuple(map(row.get, names)) for row in step.rows
        ]
        await self._do(self._target.add_rows, step.schema, rows)
        failpoint("replica.snapshot_rows")
        self.progress.snapshot_rows += len(rows)
        self._tell(caught_up=False)

    async def _end_snapshot(self, step: SnapshotEnd, consumer: Consumer) -> None:
        name = step.schema.name
        position = consumer.position()

        def swap() -> None:
            self._target.begin()
            self._target.finish_snapshot(step.schema)
            self._target.save(position)
            failpoint("replica.before_swap")
            self._target.commit()
            failpoint("replica.after_swap")

        await self._do(swap)
        self._schemas[name] = step.schema
        self._left_out.discard(name)
        self._saved = position
        self.progress.table = ""
        logger.info("%s: %d rows of the snapshot are in", name, step.info.row_count)

    def _tell(self, *, caught_up: bool) -> None:
        self.progress.caught_up = caught_up
        self._on_progress(self.progress)

    async def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        """In the target's own thread, and to its end even if this task is cancelled meanwhile."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
