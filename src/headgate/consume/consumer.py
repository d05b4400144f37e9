"""Snapshots and the stream of changes as one: every table from its rows on, over one ordered read of the stream.

Each table is joined on its own: rows of its snapshot, then changes behind the snapshot's sequence but for those the
rows contain (`rules`). All tables are read together, so that a transaction stays whole. Where the stream has lost what
a table needs, or the table was rebuilt, it is joined again, and the read goes back to the earliest point any needs.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from headgate.consume.bookmark import Bookmark
from headgate.consume.change import (
    READ,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    Change,
    Changes,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotInfo,
    SnapshotRows,
    Step,
    TableGone,
    Transaction,
)
from headgate.consume.follow import Follower
from headgate.consume.joined import Joined
from headgate.consume.link import Link
from headgate.consume.reader import SequenceGone, StreamReplaced
from headgate.consume.schema import Schema
from headgate.consume.schemas import Schemas
from headgate.consume.snapshots import SnapshotBroken, Snapshots, rule_of
from headgate.consume.subjects import table_subject
from headgate.consume.tables import TableName
from headgate.model import ConfigError, ConnectError, DataError, UsageError, places
from headgate.wire.nats import covers

__all__ = ["Consumer"]

logger = logging.getLogger(__name__)

_MAX_BROKEN = 5


@dataclass(frozen=True, slots=True)
class _Places:
    cdc_stream: str
    init_stream: str
    schema_bucket: str
    dictionary_bucket: str
    subject: str


class Consumer:
    """Reads tables of one bridge. Use it as an async context manager, and iterate over one of its three views once.

    `tables` are names, or "*" for all that the bridge publishes, now and later. `position` is what `position()` gave
    an earlier consumer. `snapshot_options` go into requests, such as `{"method": "filter"}`. Tables in `new_snapshots`
    begin with a snapshot that is made for them, even if one is there or the position has them. A table that the bridge
    does not know is an error, unless the position or `may_be_gone` has it: it was there, and may come again.
    Tables in `leave_out` are not read until they are published anew.
    """

    def __init__(
        self,
        nats_url: str,
        tables: Sequence[str] | Literal["*"],
        *,
        cdc_stream: str = "CDC",
        init_stream: str = "",
        schema_bucket: str = "",
        dictionary_bucket: str = "",
        subject: str = "",
        position: Mapping[str, Any] | None = None,
        snapshot_options: Mapping[str, Any] | None = None,
        new_snapshots: Sequence[str] = (),
        may_be_gone: Sequence[TableName] = (),
        leave_out: Sequence[TableName] = (),
        credentials: str | None = None,
        name: str = "headgate-consumer",
    ) -> None:
        self._url = nats_url
        self._names = None if tables == "*" else [TableName.parse(each) for each in tables]
        if self._names == []:
            raise UsageError("no table is named", remedy='name at least one table, or "*" for all')
        self._places = _Places(
            cdc_stream,
            init_stream or places.init_stream(cdc_stream),
            schema_bucket or places.schema_bucket(cdc_stream),
            dictionary_bucket or places.dictionary_bucket(cdc_stream),
            subject,
        )
        self._resume = None if position is None else Bookmark.from_dict(position)
        self._snapshot_options = dict(snapshot_options or {})
        self._new_snapshots = {TableName.parse(each) for each in new_snapshots}
        self._may_be_gone = set(may_be_gone)
        self._leave_out = set(leave_out)
        self._credentials = credentials
        self._client_name = name
        self._link: Link | None = None
        self._follower: Follower | None = None

    async def __aenter__(self) -> Self:
        self._link = await Link.open(self._url, name=self._client_name, credentials=self._credentials)
        self._schemas = Schemas(self._link, self._places.schema_bucket)
        self._snapshots = Snapshots(
            self._link, self._places.init_stream, self._places.cdc_stream, self._snapshot_options
        )
        stream, dictionaries = self._places.cdc_stream, self._places.dictionary_bucket
        self._follower = Follower(self._link, self._schemas, stream, dictionaries, takes_all=self._names is None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the read and the connection."""
        if self._follower is not None:
            await self._follower.close()
        if self._link is not None:
            await self._link.close()
            self._link = None

    def position(self) -> dict[str, Any]:
        """Return where to go on after what was yielded so far, as plain JSON. Tables half read begin anew."""
        return self._opened.bookmark().as_dict()

    def schema(self, table: str | TableName) -> Schema | None:
        """Return the schema of a table's rows at this point; None before it is joined."""
        joined = self._opened.joined.get(TableName.parse(table) if isinstance(table, str) else table)
        return None if joined is None else joined.schema

    def resnapshot(self, table: str | TableName) -> None:
        """Leave the table out from here on, and begin it anew with a new snapshot when the transaction has ended."""
        self._opened.drop(TableName.parse(table) if isinstance(table, str) else table)

    def leave(self, table: str | TableName) -> None:
        """Read a table no more, until it is published again."""
        self._opened.leave(TableName.parse(table) if isinstance(table, str) else table)

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Yield every change. A snapshot is a SNAPSHOT_BEGIN, a READ for each row and a SNAPSHOT_END."""
        async for step in self.steps():
            for change in _flat(step):
                yield change

    async def transactions(self) -> AsyncGenerator[Transaction, None]:
        """Yield whole transactions, each as soon as its last event is there; chunks of a snapshot have no `xid`."""
        open_changes: list[Change] = []
        async for step in self.steps():
            if isinstance(step, SnapshotBegin):
                open_changes = []  # of a transaction whose rest the stream has lost
            open_changes += _flat(step)
            if open_changes and not (isinstance(step, Changes) and not step.ends):
                first = open_changes[0]
                yield Transaction(first.commit_lsn, first.xid, first.commit_time, open_changes)
                open_changes = []

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Yield every step in order, for programs that keep an exact copy."""
        follower = self._opened
        wanted = await self._begin(follower)
        marks = self._resume.tables.values() if self._resume is not None else []
        known = self._may_be_gone | {TableName(mark.schema, mark.table) for mark in marks}
        for table in self._leave_out:
            follower.leave(table)
            follower.ignore(table)
        for table in sorted(known - self._published):
            yield TableGone(table)
        fresh = dict.fromkeys(self._new_snapshots, 0)  # of these an older snapshot than that does not do
        while True:
            async for step in self._join_all(follower, wanted, known, fresh):
                yield step
            fresh.clear()
            try:
                async for part in follower.follow():
                    yield part
                fresh |= follower.take_dropped()
                new = follower.take_new()
                follower.left.difference_update(new)
                wanted += [table for table in new if table not in wanted]
            except StreamReplaced as replaced:
                stream = self._places.cdc_stream
                logger.warning("the stream %s was deleted and made again; taking new snapshots", stream)
                follower.forget_all(replaced.created)
            except SequenceGone as gone:
                for table in follower.forget_before(gone.first):
                    logger.warning(
                        "%s: the stream has lost changes before sequence %d; taking a new snapshot", table, gone.first
                    )

    @property
    def _opened(self) -> Follower:
        if self._follower is None or self._link is None:
            raise ConnectError("the consumer is not open", remedy="use it as: async with Consumer(...) as consumer")
        return self._follower

    async def _begin(self, follower: Follower) -> list[TableName]:
        assert self._link is not None
        state = await self._link.state(self._places.cdc_stream)  # says so if there is none
        follower.created = state.created
        published = await self._schemas.tables()
        follower.subject = self._places.subject or await self._schemas.template()
        for name in self._names or ():
            self._check_subject(table_subject(follower.subject, name), state.subjects)
        self._published = set(published)
        wanted = list(self._names) if self._names is not None else published
        if self._resume is not None:
            await self._go_on(follower, self._resume, wanted)
        return wanted

    def _check_subject(self, subject: str, kept: Sequence[str]) -> None:
        """A reader of a subject that the stream does not keep would wait for ever, and think it is up to date."""
        if kept and not any(covers(pattern, subject) for pattern in kept):
            raise ConfigError(
                f"the stream {self._places.cdc_stream} keeps {', '.join(kept)}, and nothing on {subject}",
                where="subject",
                remedy="give the consumer the bridge's --subject, or start a bridge that describes its subjects",
            )

    async def _go_on(self, follower: Follower, bookmark: Bookmark, wanted: list[TableName]) -> None:
        reason = await self._unfit(bookmark)
        if reason:
            logger.warning("cannot go on at sequence %d: %s; taking new snapshots", bookmark.sequence, reason)
            return
        for mark in bookmark.tables.values():
            table = TableName(mark.schema, mark.table)
            if table not in wanted or table in self._new_snapshots:
                continue
            schema = await self._schemas.of_version(table, mark.version)
            if schema is not None:
                schema = schema.of_relation(mark.relation_id)
                after = max(mark.after, bookmark.sequence)
                follower.join(table, Joined(schema, after, mark.snapshot_id, mark.rule, mark.whole))
            else:
                logger.warning("%s: nobody remembers the shape %s; taking a new snapshot", table, mark.version)
        follower.start(bookmark.sequence, bookmark.msg_id)

    async def _unfit(self, bookmark: Bookmark) -> str:
        link = self._link
        assert link is not None
        if bookmark.stream != self._places.cdc_stream:
            return f"it is of the stream {bookmark.stream}"
        state = await link.state(bookmark.stream)
        if bookmark.stream_created not in ("", state.created):
            return f"the stream was made again at {state.created}"
        if bookmark.sequence + 1 < state.first:
            return f"the stream begins with {state.first}"
        if bookmark.sequence > state.last:
            return f"the stream ends with {state.last}; it is another one"
        message = await link.at(bookmark.stream, bookmark.sequence) if bookmark.msg_id else None
        if message is not None and (message.headers or {}).get("Nats-Msg-Id") != bookmark.msg_id:
            return "another message stands there; the stream is another one"
        return ""

    async def _join_all(
        self, follower: Follower, wanted: list[TableName], known: set[TableName], fresh: Mapping[TableName, int]
    ) -> AsyncGenerator[SnapshotBegin | SnapshotRows | SnapshotEnd | TableGone, None]:
        """Every table that is wanted and not joined. `known` are those that were there before, so may be gone now."""
        for table in [each for each in wanted if each not in follower.joined and each not in follower.left]:
            try:
                async for step in self._join(follower, table, fresh.get(table)):
                    yield step
                known.add(table)
            except ConfigError as error:
                if self._names is None:
                    wanted.remove(table)
                    follower.ignore(table)
                elif table not in known:  # a name that was never right
                    raise
                logger.warning("%s: leaving it out: %s", table, error)
                follower.leave(table)
                if table in known:
                    yield TableGone(table)

    async def _join(
        self, follower: Follower, table: TableName, behind: int | None
    ) -> AsyncGenerator[SnapshotBegin | SnapshotRows | SnapshotEnd, None]:
        """Rows of a snapshot, then the table is joined. `behind`: only a new one that has this place of the stream."""
        for _ in range(_MAX_BROKEN):
            info = await self._snapshots.find(table) if behind is None else None
            info = info or await self._snapshots.request(table, behind or 0)
            schema = await self._shape(table, info)
            behind = behind or 0
            if schema is None:
                logger.warning("%s: nobody remembers the snapshot's shape %s", table, info.schema_version)
                continue
            logger.info("%s: reading the snapshot %s, %d rows", table, info.snapshot_id, info.row_count)
            yield SnapshotBegin(schema, info)
            try:
                async for rows in self._snapshots.rows(table, info, schema):
                    yield SnapshotRows(schema, rows)
            except SnapshotBroken as error:
                logger.warning("%s: the snapshot %s is broken: %s; asking for another", table, info.snapshot_id, error)
                continue
            follower.join(table, Joined(schema, info.cdc_sequence, info.snapshot_id, rule_of(info)))
            yield SnapshotEnd(schema, info)
            return
        raise DataError(
            f"{_MAX_BROKEN} snapshots in a row were incomplete",
            where=str(table),
            remedy="does the stream INIT keep snapshots long enough to read them?",
        )

    async def _shape(self, table: TableName, info: SnapshotInfo) -> Schema | None:
        if not info.schema_version:
            return await self._schemas.current(table)
        schema = await self._schemas.of_version(table, info.schema_version)
        return schema and schema.of_relation(info.relation_id)


def _flat(step: Step) -> list[Change]:
    if isinstance(step, Changes):
        return step.changes
    if isinstance(step, SnapshotRows):
        return [_read(step.schema, READ, row, "0/0", "") for row in step.rows]
    if isinstance(step, SnapshotBegin):
        return [_read(step.schema, SNAPSHOT_BEGIN, {}, step.info.lsn, step.info.snapshot_id)]
    if isinstance(step, SnapshotEnd):
        return [_read(step.schema, SNAPSHOT_END, {}, step.info.lsn, step.info.snapshot_id)]
    return []


def _read(schema: Schema, operation: str, row: dict[str, Any], lsn: str, snapshot_id: str) -> Change:
    return Change(
        schema=schema.schema, table=schema.table, operation=operation, commit_lsn=lsn, msg_id=snapshot_id, data=row,
        schema_version=schema.version, key_columns=schema.row_key,
    )  # fmt: skip
