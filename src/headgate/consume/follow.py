"""The read of the stream for all joined tables: leaves out what snapshots contain, and says where transactions end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import msgspec

from headgate.consume.bookmark import Bookmark, TableMark
from headgate.consume.change import MESSAGE, SCHEMA, CaughtUp, Change, Changes
from headgate.consume.decode import Payloads, read_change
from headgate.consume.link import Link
from headgate.consume.reader import Message, StreamReader
from headgate.consume.rules import Rule
from headgate.consume.schema import Schema
from headgate.consume.schemas import Schemas
from headgate.consume.tables import TableName
from headgate.destinations.nats import CHUNK_HEADER
from headgate.wire.envelope import subject_token
from headgate.wire.pgoutput import parse_lsn

__all__ = ["Follower", "Joined", "table_subject"]

logger = logging.getLogger(__name__)

_MAX_PART = 10_000  # changes of one transaction that are held at once
_IDLE_S = 0.02
_LONGEST_IDLE_S = 1.0
_UNCOUNTED_S = 0.2


@dataclass(slots=True)
class Joined:
    """A table that is joined to the stream: nothing up to `after`, nothing the rule contains, nothing up to `lsn`."""

    schema: Schema
    after: int
    snapshot_id: str
    rule: Rule | None
    lsn: int
    ordinal: int = -1  # of the last change in the transaction that commits at `open_lsn`
    open_lsn: int = 0
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.key = self.schema.row_key

    def reshape(self, schema: Schema) -> None:
        self.schema, self.key = schema, schema.row_key

    def mark(self, sequence: int) -> TableMark:
        name, after = self.schema.name, self.after if self.after > sequence else 0
        return TableMark(name.schema, name.table, self.schema.version, self.snapshot_id, after, self.lsn, self.rule)


class Follower:
    """Owns the tables that are joined, and the place in the stream up to which transactions are complete."""

    def __init__(self, link: Link, schemas: Schemas, stream: str, subject: str, *, takes_all: bool) -> None:
        self.joined: dict[TableName, Joined] = {}
        self._link = link
        self._schemas = schemas
        self._stream = stream
        self._subject = subject
        self._takes_all = takes_all
        self._reader: StreamReader | None = None
        self._sequence: int | None = None  # complete up to here
        self._msg_id: str | None = None
        self._dropped: set[TableName] = set()
        self._ignored: set[TableName] = set()
        self._new: list[TableName] = []
        # The transaction that is being read.
        self._changes: list[Change] = []
        self._touched: set[TableName] = set()
        self._lsn_text = ""
        self._lsn = 0
        self._last: tuple[int, str | None] = (0, None)
        self._is_parted = False  # some of it was given out
        self._is_counted = True  # its events say how many they are

    def start(self, sequence: int, msg_id: str | None) -> None:
        """Go on behind a place that was complete."""
        self._sequence, self._msg_id = sequence, msg_id

    def forget_before(self, first: int) -> list[TableName]:
        """The stream begins with `first` now: the tables that are not joined behind that, which are joined no more."""
        sequence = self._sequence or 0
        lost = [name for name, joined in self.joined.items() if max(joined.after, sequence) + 1 < first]
        for name in lost:
            del self.joined[name]
        self._sequence, self._msg_id = min((each.after for each in self.joined.values()), default=None), None
        return lost

    def ignore(self, table: TableName) -> None:
        """A table that cannot be joined."""
        self._ignored.add(table)

    def join(self, table: TableName, joined: Joined) -> None:
        """Read a table from now on. If its place is before the others', they must not see again what they have."""
        if self._sequence is None:
            self._sequence, self._msg_id = joined.after, None
        if joined.after < self._sequence:
            for other in self.joined.values():
                other.after = max(other.after, self._sequence)
            self._sequence, self._msg_id = joined.after, None
        self.joined[table] = joined

    def drop(self, table: TableName) -> None:
        """Leave a table out; the follower stops at the end of the transaction, to let it be joined again."""
        if self.joined.pop(table, None) is not None:
            self._dropped.add(table)
            self._changes = [each for each in self._changes if (each.schema, each.table) != table]

    def take_dropped(self) -> set[TableName]:
        dropped, self._dropped = self._dropped, set()
        return dropped

    def take_new(self) -> list[TableName]:
        """Tables that the stream has shown and nobody asked for yet."""
        new, self._new = self._new, []
        return new

    def bookmark(self) -> Bookmark:
        sequence = self._sequence or 0
        tables = {name.key: joined.mark(sequence) for name, joined in self.joined.items()}
        return Bookmark(self._stream, sequence, self._msg_id, tables)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    async def follow(self) -> AsyncGenerator[Changes | CaughtUp, None]:
        """Until a table has to be joined."""
        reader, payloads = await self._begin(), Payloads(self._link)
        idle_s, told = _IDLE_S, False
        messages = await reader.read(timeout_s=0)
        while True:
            async for part in self._digest(messages, payloads):
                yield part
            if messages:
                idle_s, told = _IDLE_S, False
            elif await self._is_complete(reader, idle_s) and (end := self._end()) is not None:
                yield end
            if not (told or self._lsn_text or reader.pending or self._must_join):
                told = True
                yield CaughtUp()
            if self._must_join:
                return
            idle_s = idle_s if messages else min(idle_s * 2, _LONGEST_IDLE_S)
            messages = await reader.read(timeout_s=idle_s if self._lsn_text else _LONGEST_IDLE_S)

    async def _digest(self, messages: list[Message], payloads: Payloads) -> AsyncGenerator[Changes, None]:
        """The steps that messages bring. Made one by one: the place in the stream is that of what was given out."""
        for message in messages:
            payload = await payloads.whole(message.payload, message.headers)
            if payload is None:
                continue
            change = read_change(payload, self._shape)
            if change.commit_lsn != self._lsn_text:
                if self._lsn_text and (end := self._end()) is not None:
                    yield end
                if self._must_join:
                    return
                self._open(change)
            await self._take(change, message)
            if change.is_last:
                if (end := self._end()) is not None:
                    yield end
                if self._must_join:
                    return
            elif len(self._changes) >= _MAX_PART:
                part, self._changes, self._is_parted = self._changes, [], True
                yield Changes(part, ends=False)

    @property
    def _must_join(self) -> bool:
        """At the end of a transaction only."""
        return bool(self._dropped or self._new) and not self._lsn_text

    async def _begin(self) -> StreamReader:
        await self.close()
        self._changes, self._touched, self._lsn_text, self._is_parted = [], set(), "", False
        for joined in self.joined.values():
            joined.open_lsn, joined.ordinal = 0, -1
        if self._sequence is None:  # no table at all yet
            self._sequence = (await self._link.state(self._stream)).last
        self._reader = StreamReader(self._link, self._stream, self._sequence, self._filters())
        return self._reader

    def _filters(self) -> list[str]:
        """One subject for each table; none if all tables are wanted."""
        if self._takes_all:
            return []
        return sorted({table_subject(self._subject, name) for name in self.joined})

    def _shape(self, schema: str | None, table: str | None) -> Schema | None:
        joined = self.joined.get((schema, table))  # type: ignore[call-overload]
        return joined.schema if joined else None

    def _open(self, change: Change) -> None:
        """A transaction begins. Rules that are over for it are over for all that follow."""
        self._lsn_text = change.commit_lsn
        self._lsn = parse_lsn(change.commit_lsn)
        for joined in self.joined.values():
            if joined.rule is not None and joined.rule.is_over(self._lsn, change.xid):
                joined.rule = None

    async def _take(self, change: Change, message: Message) -> None:
        self._last = (message.sequence, _message_id(message.headers))
        self._is_counted = change.event_count is not None
        if change.operation == MESSAGE or change.schema is None or change.table is None:
            return
        name = TableName(change.schema, change.table)
        joined = self.joined.get(name)
        if joined is None:
            if self._takes_all and name not in {*self._dropped, *self._new, *self._ignored}:
                self._new.append(name)
            return
        if message.sequence <= joined.after or self._lsn <= joined.lsn:
            return
        if joined.rule is not None and joined.rule.contains(self._lsn, change.xid):
            return
        if change.ordinal is not None:
            if joined.open_lsn == self._lsn and change.ordinal <= joined.ordinal:
                return
            joined.open_lsn, joined.ordinal = self._lsn, change.ordinal
        if change.schema_version not in (None, joined.schema.version):
            await self._reshape(name, joined, change)
            if name not in self.joined:
                return
            if change.operation == SCHEMA:
                joined.reshape(Schema.read(change.data))
        elif change.operation == SCHEMA:
            return
        self._touched.add(name)
        change.sequence = message.sequence
        change.key_columns = joined.key
        self._changes.append(change)

    async def _reshape(self, name: TableName, joined: Joined, change: Change) -> None:
        """A row of a shape that the stream did not announce: look it up, and announce it."""
        if change.operation == SCHEMA:
            return
        schema = await self._schemas.of_version(name, change.schema_version or "")
        if schema is None:
            logger.warning("%s: nobody remembers the shape %s; taking a new snapshot", name, change.schema_version)
            self.drop(name)
            return
        joined.reshape(schema)
        announced = Change(
            schema=name.schema, table=name.table, operation=SCHEMA, commit_lsn=change.commit_lsn, xid=change.xid,
            msg_id="", data=_plain(schema), schema_version=schema.version, commit_time=change.commit_time,
        )  # fmt: skip
        self._changes.append(announced)

    def _end(self) -> Changes | None:
        """The transaction is complete."""
        changes, self._changes = self._changes, []
        for name in self._touched:
            if name in self.joined:
                self.joined[name].lsn = self._lsn
        self._touched = set()
        self._lsn_text = ""
        self._sequence, self._msg_id = self._last
        parted, self._is_parted = self._is_parted, False
        return Changes(changes, ends=True) if changes or parted else None

    async def _is_complete(self, reader: StreamReader, idle_s: float) -> bool:
        """Whether the open transaction has ended: its last event may be on a table that is not read here."""
        if not self._lsn_text or reader.pending:
            return False
        state = await self._link.state(self._stream)
        if state.last == self._last[0]:
            # A counted event would have said that it is the last. A lone SCHEMA has no count.
            return not self._is_counted and idle_s > _UNCOUNTED_S
        message = await self._link.at(self._stream, state.last)
        if message is None or message.data is None:
            return False
        if CHUNK_HEADER in (message.headers or {}):
            lsn = (_message_id(message.headers) or "").split("-")[-2:-1]
            return lsn != [f"{self._lsn:016X}"]
        payload = await Payloads(self._link).whole(message.data, message.headers)
        last = read_change(payload or b"", self._shape)
        return last.commit_lsn != self._lsn_text or last.is_last


def _message_id(headers: Mapping[str, str] | None) -> str | None:
    return None if headers is None else headers.get("Nats-Msg-Id")


def table_subject(template: str, name: TableName) -> str:
    """The subject of all events of a table."""
    filled = template.replace("{schema}", subject_token(name.schema)).replace("{table}", subject_token(name.table))
    tokens = ["*" if "{op}" in token else token for token in filled.split(".")]
    return ".".join(tokens)


def _plain(schema: Schema) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(schema)
    return plain
