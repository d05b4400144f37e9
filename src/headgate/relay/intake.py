"""From a host's frame to a verdict that is acted on: the middle of the relay.

    intake = Intake(options, store, resolver, ledger, judges, sequenced)
    await intake.submit(host, frame, message)      # waits while too much is on its way
    intake.cursor(host)                            # up to here, all of the host is dealt with

Frames of one account from one host form a lane and keep their order; lanes run beside each other. The first frame of
a lane is judged; if it needs a DID document, the lane waits for it. Two hosts that both claim an account have a lane
each, so that neither can delay the other: a verdict counts only if the account is still as it was judged by.

`sequenced(accepted, host, seq)` gives the event its place. It is called in the order that counts and returns an
awaitable that is done when the event is safe; the next events do not wait for it, but the host's cursor and the store
do. Events that the relay makes itself come with no host and seq 0.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from headgate.model import HeadgateError
from headgate.relay.accounts import Accounts
from headgate.relay.events import account_frame, resynced
from headgate.relay.ledger import Ledger
from headgate.relay.options import RelayOptions
from headgate.relay.resolve import Resolver
from headgate.relay.statuses import Statuses
from headgate.relay.store import AccountRow, Store
from headgate.relay.track import HostRead, Item, Room, Track
from headgate.relay.verdict import Accepted, NeedsDocument, Rejected, Verdict
from headgate.relay.workers import Judge, Question
from headgate.runtime.ending import end
from headgate.wire.atproto import Account, Frame, Kind, read_event, read_frame

__all__ = ["Intake", "Sequenced"]

logger = logging.getLogger(__name__)

Sequenced: TypeAlias = Callable[[Accepted, str, int], Awaitable[object]]

_BATCH = 32
_BATCH_BYTES = 512 << 10
_TURNS_PER_JUDGE = 2  # batches on their way to one judge, so that it need not wait for the next
_EVENTS = frozenset((Kind.COMMIT, Kind.SYNC, Kind.IDENTITY, Kind.ACCOUNT))
_STORE_RETRY_S = 1.0
_STOP_S = 10.0


@dataclass(slots=True, eq=False)
class _Lane:
    host: str
    did: str
    items: deque[Item] = field(default_factory=deque)
    waiting: bool = False  # for a document


class Intake:
    """See the module. `failed` is done when an event could not be given its place: then the relay must stop."""

    def __init__(
        self,
        options: RelayOptions,
        store: Store,
        resolver: Resolver,
        ledger: Ledger,
        judges: Sequence[Judge],
        sequenced: Sequenced,
    ) -> None:
        self._options, self._store, self._resolver, self.ledger = options, store, resolver, ledger
        self._judges, self._sequenced = judges, sequenced
        self.accounts = Accounts(store, options)
        self.statuses: Statuses | None = None  # None: hosts are not asked for the status of accounts
        self._room = Room(options.hold)
        self._tracks: dict[str, Track] = {}
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._ready: list[deque[_Lane]] = [deque() for _ in judges]
        self._work = [asyncio.Event() for _ in judges]
        self._tasks: set[asyncio.Task[None]] = set()
        self._placing: set[asyncio.Future[object]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Intake:
        for shard in range(len(self._judges)):
            for _ in range(_TURNS_PER_JUDGE):
                self._spawn(self._run(shard))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop. What is on its way is forgotten: no cursor is behind it, so it comes again."""
        await end(*self._tasks)
        await self._await_placing()
        for lane in self._lanes.values():
            for item in lane.items:
                self.ledger.abandoned(item.host)
            if lane.waiting:
                self.ledger.held(lane.host, -len(lane.items))
        self._lanes.clear()
        if self.failed.done():
            self.failed.exception()  # somebody has looked, or nobody needs to any more
        else:
            self.failed.cancel()

    async def _await_placing(self) -> None:
        """Let events that have their place become safe; they are not to be sent twice."""
        if self._placing:
            _, late = await asyncio.wait(self._placing, timeout=_STOP_S)
            for placing in late:
                placing.cancel()
            await asyncio.sleep(0)

    # For readers.

    def track(self, host: str) -> Track:
        return self._tracks.setdefault(host, Track())

    def reads(self) -> dict[str, HostRead]:
        """How far each host has been read, and what of it is still on its way."""
        return {host: track.read for host, track in self._tracks.items() if track.last or track.read_before}

    def cursor(self, host: str) -> int:
        return self.track(host).cursor

    async def submit(self, host: str, frame: Frame, message: bytes) -> None:
        """Take a frame of a host. It must be above the one before, and counted as received."""
        track = self.track(host)
        if frame.kind not in _EVENTS:
            self.ledger.ignored(host)
            return
        item = Item(host, frame.kind, frame.did, frame.seq, message, self._resolver.clock(), track.round)
        try:
            await self._room.enter(track, item.cost)
        except asyncio.CancelledError:  # it was not taken, so it comes again
            self.ledger.abandoned(host)
            raise
        item.arrived = self._resolver.clock()
        track.last = item.seq
        track.pending[item] = None
        self._quiet.clear()
        lane = self._lanes.get((host, item.did))
        if lane is None:
            lane = self._lanes[host, item.did] = _Lane(host, item.did)
        lane.items.append(item)
        if lane.waiting:
            self.ledger.held(host, 1)
        elif len(lane.items) == 1:
            self._enqueue(lane)

    async def settled(self) -> None:
        """Wait until nothing is on its way."""
        await self._quiet.wait()

    # The verdict.

    def _enqueue(self, lane: _Lane) -> None:
        shard = zlib.crc32(lane.host.encode()) % len(self._judges)
        self._ready[shard].append(lane)
        self._work[shard].set()

    async def _run(self, shard: int) -> None:
        ready, work = self._ready[shard], self._work[shard]
        while True:
            await work.wait()
            lanes = self._next(ready)
            if not ready:
                work.clear()
            if lanes:
                await self._judge(shard, lanes)
                await self._store.room()

    def _next(self, ready: deque[_Lane]) -> list[_Lane]:
        """Lanes to judge together: some, and not too many bytes. Those of a host that is in debt come back later."""
        lanes: list[_Lane] = []
        size = 0
        while ready and len(lanes) < _BATCH and size < _BATCH_BYTES:
            lane = ready.popleft()
            budget = self.track(lane.host).budget
            if budget is not None and (debt_s := budget.debt_s()) > 0:
                asyncio.get_running_loop().call_later(debt_s, self._enqueue, lane)
                continue
            lanes.append(lane)
            size += len(lane.items[0].message)
        return lanes

    async def _judge(self, shard: int, lanes: list[_Lane]) -> None:
        await self._load([lane.did for lane in lanes])
        now_us = time.time_ns() // 1_000
        questions = [self._question(lane, now_us) for lane in lanes]
        judged = await self._judges[shard].judge(questions)
        for lane, question, (verdict, spent_s) in zip(lanes, questions, judged, strict=True):
            self.ledger.validation.observe(spent_s)
            if (budget := self.track(lane.host).budget) is not None:
                budget.spend(spent_s)
            self._act(lane, question, verdict)

    async def _load(self, dids: list[str]) -> None:
        """Bring accounts into memory, however long the store is away: nothing is judged by what is not known."""
        while True:
            try:
                return await self.accounts.load(dids)
            except HeadgateError as error:
                logger.warning("the store does not answer: %s", error)
                await asyncio.sleep(_STORE_RETRY_S)

    def _question(self, lane: _Lane, now_us: int) -> Question:
        item = lane.items[0]
        row = self.accounts.get(lane.did)
        item.state = row.state if row is not None else None
        found = item.found or self._resolver.cached(lane.did)
        document = found.document if found is not None else None
        fresh = found is not None and found.at >= item.arrived
        return Question(item.message, read_frame(item.message), item.host, item.state, document, fresh, now_us)

    def _act(self, lane: _Lane, question: Question, verdict: Verdict) -> None:
        item = lane.items[0]
        if isinstance(verdict, NeedsDocument):
            lane.waiting = True
            self.ledger.held(lane.host, len(lane.items))
            self._spawn(self._await_document(lane, item, verdict))
            return
        row = self.accounts.get(lane.did)
        if (row.state if row is not None else None) != item.state:
            self._enqueue(lane)  # another host's event came between: judge again
            return
        if isinstance(verdict, Rejected):
            resync = self._after_gap(question, verdict, row)
            if resync:
                self._accept(item, resync, row, resync=True)
            else:
                self._drop(item, verdict.reason, verdict.detail)
        else:
            self._accept(item, verdict, row)
        self._advance(lane)

    def _advance(self, lane: _Lane) -> None:
        lane.items.popleft()
        if lane.items:
            self._enqueue(lane)
        else:
            del self._lanes[lane.host, lane.did]

    def _after_gap(self, question: Question, verdict: Rejected, row: AccountRow | None) -> Accepted | None:
        wanted = self._options.resync and verdict.out_of_sync and row is not None
        return resynced(question, self._options.policy) if wanted else None

    # Documents.

    async def _await_document(self, lane: _Lane, item: Item, wanted: NeedsDocument) -> None:
        """Let the lane go on when its document is there; drop its first item when there is none."""
        since = item.arrived if wanted.refresh else None
        found = await self._resolver.insist(lane.did, since, until=item.arrived + self._options.hold_s, host=lane.host)
        lane.waiting = False
        self.ledger.held(lane.host, -len(lane.items))
        if found.error is None:
            item.found = found
            self._enqueue(lane)
        else:
            self._drop(item, wanted.because or found.error.reason, found.error.message)
            self._advance(lane)

    # What comes of it.

    def _accept(self, item: Item, verdict: Accepted, row: AccountRow | None, *, resync: bool = False) -> None:
        reason = self.accounts.refusal(verdict.event, item.host, row)
        if reason is not None:
            self._drop(item, reason, "")
            return
        self._ask_status(item, verdict, row)
        new = self.accounts.after(verdict, item.host, row)
        if isinstance(verdict.event, Account) and new.local_status is not None:
            verdict = self._combined(verdict, new)
        self.accounts.ahead(new)
        self._place(item, verdict, new, resync=resync)

    def _ask_status(self, item: Item, verdict: Accepted, row: AccountRow | None) -> None:
        if self.statuses is None:
            return
        if isinstance(verdict.event, Account):
            self.statuses.outdated(item.did)
        elif row is None or not row.host:
            self.statuses.ask(item.did, item.host)

    def _combined(self, verdict: Accepted, row: AccountRow) -> Accepted:
        frame = account_frame(row, verdict.frame.body)
        return replace(verdict, frame=frame, event=read_event(frame))

    def _place(self, item: Item, verdict: Accepted, row: AccountRow, *, resync: bool) -> None:
        placed = asyncio.ensure_future(self._sequenced(verdict, item.host, item.seq))

        self._placing.add(placed)

        def safe(done: asyncio.Future[object]) -> None:
            self._placing.discard(done)
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                self.ledger.abandoned(item.host)
                if error is not None:
                    self._fail(error)
                return
            self.accounts.safe(row)
            self.ledger.accepted(item.host, verdict.warnings, resynced=resync)
            self._finish(item)

        placed.add_done_callback(safe)

    def _drop(self, item: Item, reason: str, detail: str) -> None:
        self.ledger.dropped(item.host, reason, did=item.did, seq=item.seq, kind=item.kind.value, detail=detail)
        self._finish(item)

    def _finish(self, item: Item) -> None:
        track = self.track(item.host)
        track.done(item)
        self._room.leave(track, item.cost)
        if self._room.events == 0:
            self._quiet.set()

    async def heard_status(self, did: str, host: str, status: str) -> None:
        """An account is not active, as its host answers: as if the host had sent an #account that says so."""
        await self._load([did])
        row = self.accounts.get(did)
        is_news = row is not None and row.host == host and row.active
        if row is None or not is_news or self.statuses is None or not self.statuses.is_wanted(did):
            return
        new = replace(row, active=False, status=status)
        self.accounts.ahead(new)
        frame = account_frame(new, {})
        try:
            await self._sequenced(Accepted(frame, read_event(frame), new.state), "", 0)
        except Exception as error:
            self._fail(error)
        else:
            self.accounts.safe(new)

    # What operators decide.

    async def set_local_status(self, did: str, status: str | None) -> bool:
        """Take an account down (`takendown`, `suspended`), or with None lift that, and tell consumers.

        It may be one that was never seen: then nobody needs to be told, and False is the answer.
        """
        await self.accounts.load([did])
        row = self.accounts.get(did)
        new = replace(row or AccountRow(did, ""), local_status=status)
        self.accounts.ahead(new)
        if row is not None:
            frame = account_frame(new, {})
            await self._sequenced(Accepted(frame, read_event(frame), new.state), "", 0)
        self.accounts.safe(new)
        await self._store.flush()
        return row is not None

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        logger.error("the relay cannot go on: %s", error)
        if not self.failed.done():
            self.failed.set_exception(error)
