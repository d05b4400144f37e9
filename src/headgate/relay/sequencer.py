"""Gives accepted events their number: durable in the log first, then in the books, then to whoever listens.

    sequencer = Sequencer(log, index, checkpoint)
    await sequencer.recover(store)
    await sequencer.sequenced(accepted, host, upstream_seq)

The fan-out reads the log, so nothing is heard before it is durable. What the store has not yet written when the process
dies is read from the log again: `checkpoint` says from where on. Each event is in the log with its host and its number
there, so that one that its host sends again after a crash is known, whatever kind of event it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import msgspec

from headgate.eventlog import EventLog, LogReader, Record
from headgate.model import HeadgateError
from headgate.relay.collections import CollectionIndex
from headgate.relay.store import AccountRow, Store
from headgate.relay.track import HostRead
from headgate.relay.verdict import Accepted
from headgate.runtime.files import replace_file
from headgate.runtime.timings import Timings
from headgate.wire.atproto import (
    Account,
    AtprotoError,
    Commit,
    Event,
    Frame,
    Kind,
    Sync,
    read_car,
    read_commit,
    read_event,
    read_frame,
    resequence,
)
from headgate.wire.atproto.logged import LOG_KINDS, frame_of, logged, origin_of, time_of

__all__ = ["Sequencer", "uid_of"]

_log = logging.getLogger(__name__)

_CHECKPOINT_S = 5.0
_DELETED = "deleted"


def uid_of(did: str) -> int:
    """The number of an account in the log."""
    return int.from_bytes(blake2b(did.encode(), digest_size=8).digest(), "little")


class Checkpoint(msgspec.Struct):
    """What the store and the hosts' numbers had reached together."""

    seq: int
    reads: dict[str, HostRead] = {}


class Sequencer:
    """The one that writes the log. Numbers are given in the order of the calls."""

    def __init__(self, log: EventLog, index: CollectionIndex, checkpoint: Path) -> None:
        self._log, self._index, self._checkpoint = log, index, checkpoint
        self._intents = checkpoint.with_name("scrubbing")
        self._scrubbing: set[str] = set()
        self._scrubs = asyncio.Lock()  # one after the other: each goes through the whole log
        self._last_us = 0
        self.reads: Callable[[], dict[str, HostRead]] = dict  # how far each host was read, at this moment
        self.read_before: dict[str, HostRead] = {}  # and when the relay ended, however it ended
        self.last_seq = 0  # given, durable, and known to the store
        self.events = 0
        self.timings = Timings()

    def sequenced(self, accepted: Accepted, host: str, upstream_seq: int) -> asyncio.Future[int]:
        """Number an event; the future is done when it is durable."""
        frame, event = accepted.frame, accepted.event
        placed = self._log.submit(
            LOG_KINDS[frame.kind], uid_of(frame.did), partial(self._payload, frame, host, upstream_seq)
        )
        placed.add_done_callback(partial(self._placed, event, time.monotonic()))
        return placed

    def _payload(self, frame: Frame, host: str, upstream_seq: int, seq: int) -> bytes:
        """Called by the log's thread alone, in the order of the numbers: times rise with them, whatever the clock."""
        self._last_us = max(self._last_us + 1, time.time_ns() // 1000)
        return logged(self._last_us, resequence(frame, seq), host, upstream_seq)

    def _placed(self, event: Event, began: float, placed: asyncio.Future[int]) -> None:
        if placed.cancelled() or placed.exception() is not None:
            return  # whoever waits for it is told
        self.timings.observe(time.monotonic() - began)
        self.last_seq = placed.result()
        self.events += 1
        self._note(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, Commit):
            self._index.add(event.did, {op.collection for op in event.ops if op.cid is not None})
        elif isinstance(event, Account) and not event.active and event.status == _DELETED:
            self._index.remove(event.did)

    async def scrub(self, did: str) -> int:
        """Wipe what an account has said from the log; its status stays."""
        uid, kept = uid_of(did), LOG_KINDS[Kind.ACCOUNT]
        self._index.remove(did)
        async with self._scrubs:
            await self._intend(self._scrubbing | {did})
            count = await self._log.scrub(lambda record: record.uid == uid and record.kind != kept)
            await self._intend(self._scrubbing - {did})
        return count

    async def _intend(self, dids: set[str]) -> None:
        """Note whose events are being wiped, so that a crash in the middle of it does not leave the rest."""
        self._scrubbing = dids
        await asyncio.to_thread(replace_file, self._intents, json.dumps(sorted(dids)).encode())

    # After a crash

    async def recover(self, store: Store) -> int:
        """Bring the store up to the log; how many events that took."""
        count = 0
        reached, self.read_before = self._read_checkpoint()
        with self._log.reader() as reader:
            for records in reader.read(reached):
                for record in records:
                    self._note_origin(record)
                    await self._replay(store, record)
                count += len(records)
            self.last_seq = reader.head_seq
            self._last_us = _last_time(reader)
        await self.check(store)
        self._scrubbing = self._read_intents()
        for did in list(self._scrubbing):
            await self.scrub(did)
        return count

    async def check(self, store: Store) -> None:
        """Write the store, and note that it has everything up to here."""
        reached = Checkpoint(self.last_seq, self.reads() or self.read_before)  # at one moment
        await store.flush()
        await asyncio.to_thread(replace_file, self._checkpoint, msgspec.json.encode(reached))

    async def keep_checking(self, store: Store) -> None:
        while True:
            await asyncio.sleep(_CHECKPOINT_S)
            try:
                await self.check(store)
            except (HeadgateError, OSError) as error:  # the next start reads more of the log; that is all
                _log.warning("the checkpoint stays behind: %s", error)

    def _read_checkpoint(self) -> tuple[int, dict[str, HostRead]]:
        try:
            text = self._checkpoint.read_bytes()
            found = Checkpoint(int(text)) if text.isdigit() else msgspec.json.decode(text, type=Checkpoint)
        except (FileNotFoundError, ValueError):
            found = Checkpoint(0)  # all of the log is read, which is slow and never wrong
        return found.seq, found.reads

    def _note_origin(self, record: Record) -> None:
        origin = origin_of(record.payload)
        if origin is not None:
            self.read_before.setdefault(origin[0], HostRead()).later.add(origin[1])

    def _read_intents(self) -> set[str]:
        with suppress(FileNotFoundError):
            return {str(did) for did in json.loads(self._intents.read_text())}
        return set()

    async def _replay(self, store: Store, record: Record) -> None:
        try:
            event = read_event(read_frame(frame_of(record.payload)))
        except AtprotoError as error:  # of an older version, which was less strict: no reason not to start
            _log.warning("event %d of the log is passed over: %s", record.seq, error.message)
            return
        self._note(event)
        if isinstance(event, Commit | Sync):
            known = await store.get(event.did) or AccountRow(event.did, "")
            await store.catch_up(_moved(known, event))
        elif isinstance(event, Account):
            known = await store.get(event.did) or AccountRow(event.did, "")
            if known.local_status is None:
                store.put(replace(known, active=event.active, status=event.status))
                await store.room()


def _moved(row: AccountRow, event: Commit | Sync) -> AccountRow:
    """The account as an event that is in the log has left it."""
    car = read_car(event.blocks)
    head = event.commit if isinstance(event, Commit) else car.roots[0]
    return replace(row, rev=event.rev, data=read_commit(car.blocks[head]).data, head=head)


def _last_time(reader: LogReader) -> int:
    with reader.cursor(reader.head_seq - 1) as cursor:
        return max((time_of(record.payload) for record in cursor.read()), default=0)
