"""The read of the stream for all joined tables: leaves out what snapshots contain, and says where transactions end.

A transaction ends with its last event, or where the next one begins. A reader of some tables may see neither, and then
looks at the stream: first at the stream's last message, then whether everything up to that one has been read. Only if
both are so, the transaction is complete. A last event that comes after all is an error, and never dropped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping

import msgspec

from headgate.consume.change import SCHEMA, CaughtUp, Change, Changes, TableGone
from headgate.consume.decode import PartMissing, Payloads, read_change
from headgate.consume.followed import FollowedTables
from headgate.consume.gaps import gap_of
from headgate.consume.joined import Joined, OpenTransaction, Recent, TransactionKey
from headgate.consume.link import Link
from headgate.consume.reader import Message, StreamReader, StreamReplaced
from headgate.consume.schema import Schema
from headgate.consume.schemas import Schemas
from headgate.consume.subjects import chain_of, filters, previous_of, table_chain
from headgate.consume.tables import TableName
from headgate.model import ProtocolError
from headgate.model.position import origin_of
from headgate.wire.nats.fragments import FRAGMENT_HEADER
from headgate.wire.pgoutput import parse_lsn

__all__ = ["Follower"]

_MAX_PART = 10_000  # changes of one transaction that are held at once
_IDLE_S = 0.02
_LONGEST_IDLE_S = 1.0
_LOOK_S = 5.0  # between two looks at what is gone from the stream
_WATCH_S = 1.0  # between two looks for new tables


class Follower(FollowedTables):
    """Reads the stream for all joined tables. Stops where one has to be joined, or joined again."""

    def __init__(self, link: Link, schemas: Schemas, stream: str, dictionaries: str, *, takes_all: bool) -> None:
        super().__init__(stream)
        self.subject = ""  # a template
        self._link = link
        self._schemas = schemas
        self._dictionaries = dictionaries
        self._takes_all = takes_all
        self._reader: StreamReader | None = None
        self._chains: dict[str, list[TableName]] = {}
        self._recent = Recent()  # ids of a stream that may repeat itself
        self._ruled: list[Joined] = []  # tables whose rule is not over
        self._looked_at = self._watched_at = 0.0

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    async def follow(self) -> AsyncGenerator[Changes | CaughtUp | TableGone, None]:
        """Until a table has to be joined."""
        reader, payloads = await self._begin(), Payloads(self._link, self._dictionaries)
        idle_s, told = _IDLE_S, False
        messages = await reader.read(timeout_s=0)
        while True:
            async for part in self._digest(messages, payloads):
                yield part
            if messages:
                idle_s, told = _IDLE_S, False
            await self._watch()
            for table in self._take_gone():
                yield TableGone(table)
            if self._must_join():
                return
            if not messages and (self._open is not None or not told or self._is_due):
                has_read_all, end = await self._look(reader)
                if end is not None:
                    yield end
                if self._must_join():
                    return
                if has_read_all and self._open is None and not told:
                    told = True
                    yield CaughtUp()
                    if self._must_join():  # whoever was told may have asked for it
                        return
            elif self._is_due:
                await self._look_for_gaps(reader.sequence)
            idle_s = idle_s if messages else min(idle_s * 2, _LONGEST_IDLE_S)
            messages = await reader.read(timeout_s=_LONGEST_IDLE_S if told else idle_s)

    # Messages ------------------------------------------------------------------------------------------------

    async def _digest(self, messages: list[Message], payloads: Payloads) -> AsyncGenerator[Changes, None]:
        """The steps that messages bring. Made one by one: the place in the stream is that of what was given out."""
        for message in messages:
            self._at = message.sequence
            previous = previous_of(message.headers)
            if previous is not None:
                self._check_link(message, previous)
            try:
                payload = await payloads.whole(message.payload, message.headers)
            except PartMissing as missing:
                self._note_missing_part(message, missing.number)
                continue
            if payload is None:
                continue
            change = read_change(payload, self._shape)
            key = self._open.key if self._open is not None and self._open.key.has(change) else TransactionKey.of(change)
            if self._is_behind(change, key.origin, message, is_chained=previous is not None):
                continue
            if self._open is not None and self._open.key != key:
                if (end := self._end_by(change, key)) is not None:
                    yield end
                if self._must_join():
                    return
            if (part := await self._take(change, key, message)) is not None:
                yield part
            if self._must_join():
                return

    async def _take(self, change: Change, key: TransactionKey, message: Message) -> Changes | None:
        """A change into its transaction; the step that this makes."""
        is_alone = change.operation == SCHEMA and self._open is None  # before a transaction, and no part of it
        if self._open is None:
            if not is_alone:
                self._check_closed(key, message)
            self._enter(change, key)
        assert self._open is not None
        await self._add(change, message)
        self._open.place = (message.sequence, _message_id(message.headers))
        if is_alone or change.is_last:
            return self._end(closes=not is_alone)
        if len(self._open.changes) < _MAX_PART:
            return None
        part, self._open.changes, self._open.is_parted = self._open.changes, [], True
        return Changes(part, ends=False)

    async def _begin(self) -> StreamReader:
        await self.close()
        self._open = None
        if self._sequence is None:  # no table at all yet
            self._sequence = (await self._link.state(self._stream)).last
        for joined in self.joined.values():
            joined.whole = joined.whole_at(self._sequence)
        if self._sequence < self._at:  # some is read again
            self._newest = {origin_of(self._msg_id): self._msg_id} if self._msg_id else {}
        self._ruled = [joined for joined in self.joined.values() if joined.rule is not None]
        self._chains = {}
        for name in self.joined:
            if (chain := table_chain(self.subject, name)) is not None:
                self._chains.setdefault(chain, []).append(name)
        wanted = [] if self._takes_all else filters(self.subject, self.joined)
        self._at = self._sequence
        self._reader = StreamReader(self._link, self._stream, self._sequence, wanted, created=self.created)
        return self._reader

    def _shape(self, schema: str | None, table: str | None) -> Schema | None:
        joined = self.joined.get((schema, table))  # type: ignore[call-overload]
        return joined.schema if joined else None

    def _enter(self, change: Change, key: TransactionKey) -> None:
        """A transaction begins. Rules that are over for it are over for all that follow."""
        self._open = OpenTransaction(key, parse_lsn(change.commit_lsn), is_counted=change.event_count is not None)
        if not self._ruled:
            return
        for joined in self._ruled:
            if joined.rule is not None and joined.rule.is_over(self._open.lsn, change.xid):
                joined.rule = None
        self._ruled = [joined for joined in self._ruled if joined.rule is not None]

    async def _add(self, change: Change, message: Message) -> None:
        """Take a change into the open transaction, if it is wanted."""
        assert self._open is not None
        if change.schema is None or change.table is None:
            self._note_marker(change, message)
            return
        name = TableName(change.schema, change.table)
        joined = self.joined.get(name)
        if joined is None:
            if self._takes_all and name not in {*self._dropped, *self._new, *self._ignored}:
                self._new.append(name)
            return
        if message.sequence <= joined.after:
            return
        if joined.rule is not None and joined.rule.contains(self._open.lsn, change.xid):
            return
        if change.relation_id != joined.schema.relation_id and change.relation_id and joined.schema.relation_id:
            self._lose(name, "another table has its name now")
            return
        if change.schema_version not in (None, joined.schema.version):
            await self._reshape(name, joined, change)
            if name not in self.joined:
                return
            if change.operation == SCHEMA:
                joined.reshape(Schema.read(change.data))
        elif change.operation == SCHEMA:
            return
        self._open.touched.add(name)
        change.sequence = message.sequence
        change.key_columns = joined.key
        self._open.changes.append(change)

    async def _reshape(self, name: TableName, joined: Joined, change: Change) -> None:
        """A row of a shape that the stream did not announce: look it up, and announce it."""
        if change.operation == SCHEMA:
            return
        schema = await self._schemas.of_version(name, change.schema_version or "")
        if schema is None:
            self._lose(name, f"nobody remembers the shape {change.schema_version}")
            return
        schema = schema.of_relation(joined.schema.relation_id)
        joined.reshape(schema)
        announced = Change(
            schema=name.schema, table=name.table, operation=SCHEMA, commit_lsn=change.commit_lsn, xid=change.xid,
            msg_id="", data=_plain(schema), schema_version=schema.version, commit_time=change.commit_time,
        )  # fmt: skip
        assert self._open is not None
        self._open.changes.append(announced)

    # The end of a transaction --------------------------------------------------------------------------------

    def _end(self, *, closes: bool = True) -> Changes | None:
        """The open transaction is complete."""
        assert self._open is not None
        ended, self._open = self._open, None
        self._sequence, self._msg_id = ended.place
        if closes:
            self._closed = (ended.key, ended.place[0])
        return Changes(ended.changes, ends=True) if ended.changes or ended.is_parted else None

    def _end_by(self, change: Change, key: TransactionKey) -> Changes | None:
        """Another transaction begins while one is open: it is over, but is it whole?"""
        assert self._open is not None
        if self._open.key.origin != key.origin:
            self._abandon("another bridge writes to the stream, into the middle of a transaction", all_tables=False)
        elif gap_of(change) is not None:
            self._abandon("a transaction was cut off", all_tables=False)
        elif self._takes_all and self._open.is_counted:  # whoever reads everything has seen no last event
            self._abandon("the end of a transaction is missing in the stream", all_tables=True)
        else:
            return self._end()
        return None

    def _abandon(self, reason: str, *, all_tables: bool) -> None:
        """What was read of the open transaction counts for nothing."""
        assert self._open is not None
        for name in list(self.joined if all_tables else self._open.touched):
            if name in self.joined and self._at > self.joined[name].after:
                self._lose(name, reason)
        self._sequence, self._msg_id = self._open.place
        self._open = None

    def _check_closed(self, key: TransactionKey, message: Message) -> None:
        closed, sequence = self._closed
        if closed == key and message.sequence > sequence:
            raise ProtocolError(
                f"an event at sequence {message.sequence} belongs to the transaction {key.commit_lsn}, "
                f"which was complete at {sequence}",
                where=f"stream {self._stream}",
                remedy="start again: it goes on with this event; if it comes again, take new snapshots",
            )

    def _is_behind(self, change: Change, origin: str, message: Message, *, is_chained: bool) -> bool:
        """Whether an event stands behind its place in the order: a repetition, or one that was sent late.

        Streams that a bridge has for itself have neither. In others a repetition that is remembered is left out; for
        anything else the table begins anew, as its rows cannot be put right any more.
        """
        msg_id, newest = change.msg_id, self._newest.get(origin)
        if newest is None or msg_id > newest or gap_of(change) is not None:  # a gap may begin another order
            self._newest[origin] = msg_id
            if not is_chained:
                self._recent.add(msg_id)
            return False
        name = TableName(change.schema or "", change.table or "")
        joined = self.joined.get(name)
        if joined is not None and message.sequence > joined.after and msg_id not in self._recent:
            self._lose(name, f"the event {msg_id} came late")
        return True

    # Looks at the stream -------------------------------------------------------------------------------------

    @property
    def _is_due(self) -> bool:
        return asyncio.get_running_loop().time() - self._looked_at > _LOOK_S

    async def _look(self, reader: StreamReader) -> tuple[bool, Changes | None]:
        """Whether everything up to the stream's end was read; and the transaction that this shows to be complete."""
        state = await self._link.state_when_back(self._stream)
        if state.created != self.created:
            raise StreamReplaced(state.created)
        last = None
        if self._open is not None and not self._takes_all and state.last > self._open.place[0]:
            last = await self._event_at(state.last)
        if not await reader.has_read_all(state.last):
            return False, None
        await self._look_for_gaps(state.last)
        if self._open is None:
            if state.last > (self._sequence or 0) and not self._must_join():
                self._sequence, self._msg_id = state.last, None
            return True, None
        return True, self._end() if last is not None and self._is_ended_by(last) else None

    def _is_ended_by(self, last: Change) -> bool:
        """Whether a message of the stream shows that the open transaction is over, and is of no cut-off one."""
        assert self._open is not None
        key = TransactionKey.of(last)
        if key.origin != self._open.key.origin:
            return False
        return last.is_last if key == self._open.key else True

    async def _event_at(self, sequence: int) -> Change | None:
        """The event that ends there; None if it is not whole, or gone."""
        message = await self._link.at(self._stream, sequence)
        if message is None or message.data is None:
            return None
        number, _, count = (message.headers or {}).get(FRAGMENT_HEADER, "1/1").partition("/")
        if number != count:
            return None
        payloads = Payloads(self._link, self._dictionaries)
        for place in range(sequence - int(count) + 1, sequence + 1):
            message = await self._link.at(self._stream, place)
            if message is None:
                return None
            try:
                payload = await payloads.whole(message.data or b"", message.headers)
            except PartMissing:
                return None
        return read_change(payload, self._shape) if payload else None

    async def _look_for_gaps(self, upto: int) -> None:
        """Everything up to a sequence has been read: was anything gone from the stream before it was?"""
        self._looked_at = asyncio.get_running_loop().time()
        state = await self._link.state_when_back(self._stream)
        if state.created != self.created:
            raise StreamReplaced(state.created)
        if state.deleted_count:
            gone = await self._link.deleted(self._stream)
            self._at = max(self._at, upto)
            lost = [name for name, joined in self.joined.items() if _has_between(gone, joined.whole, upto)]
            for name in lost:
                self._lose(name, "messages were deleted from the stream before they were read")
            if lost and self._open is not None:
                self._abandon("a transaction may lack what was deleted", all_tables=False)
        for joined in self.joined.values():
            joined.whole = max(joined.whole, upto)

    def _check_link(self, message: Message, previous: int) -> None:
        """Each message names the one before it of its table: is that one known?"""
        for name in self._chains.get(chain_of(message.subject), ()):
            joined = self.joined.get(name)
            if joined is None or message.sequence <= joined.after:
                continue
            if previous > joined.whole:
                self._lose(name, f"the stream has lost its message {previous}, before {message.sequence}")
            else:
                joined.whole = max(joined.whole, message.sequence)

    def _note_missing_part(self, message: Message, number: int) -> None:
        """A part without those before it. If they lie before the table's snapshot, so does the whole."""
        names = self._chains.get(chain_of(message.subject), []) if self._chains else list(self.joined)
        for name in names:
            joined = self.joined.get(name)
            if joined is not None and message.sequence - number + 1 > joined.after:
                self._lose(name, f"the stream has lost a part of the event at {message.sequence}")

    def _note_marker(self, change: Change, message: Message) -> None:
        """A message that is no change of a table. A gap marker is given out, behind the tables that it concerns."""
        gap = gap_of(change)
        if gap is None:
            return
        for name, joined in list(self.joined.items()):
            if gap.concerns(name) and message.sequence > joined.after:
                self._lose(name, f"the bridge tells of a gap ({gap.reason})")
        assert self._open is not None
        change.sequence = message.sequence
        self._open.changes.append(change)

    async def _watch(self) -> None:
        """Tables that joined or left the publication, of which nothing has passed in the stream yet."""
        now = asyncio.get_running_loop().time()
        if now - self._watched_at < _WATCH_S:
            return
        self._watched_at = now
        added, removed = await self._schemas.changed()
        self._ignored.difference_update(added)
        known = {*self.joined, *self._dropped, *self._new}
        self._new += [name for name in added if name not in known and (self._takes_all or name in self.left)]
        self._gone += [name for name in removed if name in self.joined]


def _has_between(gone: list[int], after: int, upto: int) -> bool:
    """Whether a sorted list has a number in `(after, upto]`."""
    return bisect_right(gone, after) < bisect_right(gone, upto)


def _message_id(headers: Mapping[str, str] | None) -> str | None:
    return None if headers is None else headers.get("Nats-Msg-Id")


def _plain(schema: Schema) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(schema)
    return plain
