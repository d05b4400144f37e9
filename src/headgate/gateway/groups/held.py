"""Groups in memory: claimed when somebody asks for them, changed by one request at a time, stored, and dropped.

A group is in memory while it has members. Requests of one group queue at its lock; each one lets the state machine act,
stores what changed, and answers then. If the store says that the term is over, or does not answer, the group is dropped
from memory and everybody who waits is sent to look for the coordinator again: whoever claims the lease next reads the
group as it was stored.

A gateway that was cut off must not go on answering for a group that another has taken over: terms are checked every
second, and a term that could not be checked for some seconds is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from headgate.gateway.cluster import Cluster
from headgate.gateway.groups.checks import check_name
from headgate.gateway.groups.classic import ClassicGroup
from headgate.gateway.groups.consumer import ConsumerGroup
from headgate.gateway.groups.group import Stored
from headgate.gateway.groups.settings import GroupSettings
from headgate.gateway.groups.store import GroupStore, Term
from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Act", "AnyGroup", "Held", "HeldGroups", "now", "over"]

logger = logging.getLogger(__name__)

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup
_T = TypeVar("_T")


@dataclass(eq=False)
class Held:
    """A group in memory, and the term in which it was read."""

    group_id: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    term: Term | None = None
    group: AnyGroup | None = None
    is_stored: bool = False
    claimed_at: float = 0.0
    used_at: float = 0.0
    timer: asyncio.TimerHandle | None = None

    @property
    def machine(self) -> AnyGroup:
        assert self.group is not None
        return self.group

    @property
    def office(self) -> Term:
        assert self.term is not None
        return self.term


Act: TypeAlias = Callable[[Held], Awaitable[_T]]


class HeldGroups:
    """The groups that one gateway has in memory."""

    def __init__(self, store: GroupStore, cluster: Cluster, settings: GroupSettings) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._checked_at = 0.0
        self._is_closing = False

    def __iter__(self) -> Iterator[Held]:
        return iter([held for held in self._held.values() if held.group is not None])

    async def finish(self) -> None:
        """Take no more requests, and wait for those that are under way."""
        self._is_closing = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop_all(self) -> None:
        """Forget all groups, and send everybody who waits elsewhere."""
        for held in list(self._held.values()):
            self.drop(held)

    # --- requests ---------------------------------------------------------------------------------------------------

    def at_hand(self, group_id: str) -> Held | None:
        """The group, if it is in memory and nobody is changing it."""
        held = self._held.get(group_id)
        if held is None or held.group is None or held.lock.locked() or not self._is_trusted(held):
            return None
        return held

    async def is_known(self, group_id: str) -> bool:
        """Whether there is such a group, for this gateway to coordinate."""
        check_name(group_id)
        held = self._held.get(group_id)
        if held is not None and held.group is not None:
            return True
        place = await self._store.place(group_id)
        if place.instance not in (None, self._cluster.instance):
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return place.exists

    async def run_known(self, group_id: str, act: Act[_T], otherwise: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> _T:
        """Let a group act that exists. If there is none, claim nothing and refuse with the code `otherwise`."""
        if not await self.is_known(group_id):
            raise Refused(otherwise, "the group does not exist")
        return await self.run(group_id, act)

    async def run(self, group_id: str, act: Act[_T]) -> _T:
        """Let a group act, store what changed, and answer. Goes on if whoever asked goes away."""
        check_name(group_id)
        if self._is_closing:
            raise Refused(ErrorCode.NOT_COORDINATOR, "the gateway is closing")
        return await asyncio.shield(self._start(group_id, act))

    def run_later(self, group_id: str, act: Act[None]) -> None:
        """Let a group act, if it is in memory. Nobody waits for it."""
        if group_id in self._held and not self._is_closing:
            self._start(group_id, act)

    def drop(self, held: Held) -> None:
        """Forget a group, and send everybody who waits elsewhere."""
        if self._held.get(held.group_id) is held:
            del self._held[held.group_id]
        if held.timer is not None:
            held.timer.cancel()
        if held.group is not None:
            unanswered = [ticket for ticket, _ in held.group.take_answers()]
            for ticket in [*held.group.waiting(), *unanswered]:
                _give(ticket, Refused(ErrorCode.NOT_COORDINATOR))
            held.group = None

    def drop_term(self, term: Term) -> None:
        """Forget a group whose term turned out to be over, unless it was claimed anew or is in use."""
        held = self._held.get(term.group_id)
        if held is not None and held.term == term and not held.lock.locked():
            self.drop(held)

    async def check_terms(self) -> None:
        """Drop what another gateway has taken over, and what nobody needs in memory."""
        started = now()
        terms = {held: held.term for held in self._held.values() if held.group is not None}
        epochs = await self._store.epochs([held.group_id for held in terms]) if terms else {}
        self._checked_at = started
        unused: list[Term] = []  # of groups that never came to be
        for held, term in terms.items():
            is_busy = held.term != term or held.lock.locked() or held.group is None
            if is_busy or term is None:
                continue
            if epochs.get(held.group_id) != term.epoch:
                logger.info("another gateway coordinates the group now", extra={"group": held.group_id})
                self.drop(held)
            elif held.machine.is_idle and started - held.used_at > self._settings.idle_s:
                self.drop(held)
                if not held.is_stored:
                    unused.append(term)
        if unused:
            await self._store.forget(unused)

    # --- one request ------------------------------------------------------------------------------------------------

    def _start(self, group_id: str, act: Act[_T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(self._do(group_id, act))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits any more

    async def _do(self, group_id: str, act: Act[_T]) -> _T:
        while True:
            held = self._held.setdefault(group_id, Held(group_id))
            async with held.lock:
                if self._held.get(group_id) is not held:
                    continue  # it was dropped while this request waited
                if held.group is not None and not self._is_trusted(held):
                    self.drop(held)
                    continue
                if held.group is None:
                    await self._claim(held)
                return await self._act(held, act)

    async def _act(self, held: Held, act: Act[_T]) -> _T:
        held.used_at = now()
        try:
            result = await act(held)
        except Refused:
            await self._settle(held)
            raise
        except BaseException:
            self.drop(held)  # whatever it was, the state as it is stored is sound
            raise
        await self._settle(held)
        return result

    async def _claim(self, held: Held) -> None:
        try:
            held.claimed_at = now()
            held.term = await self._store.claim(held.group_id, self._cluster.node_id, self._cluster.instance)
            if held.term is None:
                raise Refused(ErrorCode.NOT_COORDINATOR)
            stored = await self._store.load(held.group_id)
            held.group, held.is_stored = _read(self._settings, stored), stored is not None
        except BaseException:
            self.drop(held)
            raise

    async def _settle(self, held: Held) -> None:
        """Store, then answer."""
        if held.group is None or self._held.get(held.group_id) is not held:
            return
        changes = held.group.take_changes()
        if changes is not None:
            try:
                is_held = await self._store.save(held.office, changes)
            except BaseException:
                self.drop(held)  # nobody knows whether it was stored
                raise
            if not is_held:
                self.drop(held)
                raise over(held)
            held.is_stored = True
        for ticket, answer in held.group.take_answers():
            _give(ticket, answer)
        self._schedule(held)

    def _is_trusted(self, held: Held) -> bool:
        return now() - max(self._checked_at, held.claimed_at) < self._settings.lease_trust_s

    # --- time -------------------------------------------------------------------------------------------------------

    def _schedule(self, held: Held) -> None:
        """Wake up at the group's next deadline. One that moves away is found out when the old one comes."""
        due = held.machine.next_deadline()
        if due is None or (held.timer is not None and not held.timer.cancelled() and held.timer.when() <= due):
            return
        if held.timer is not None:
            held.timer.cancel()
        held.timer = asyncio.get_running_loop().call_at(due, self._wake, held)

    def _wake(self, held: Held) -> None:
        held.timer = None
        if self._held.get(held.group_id) is not held or self._is_closing:
            return

        async def act(held: Held) -> None:
            held.machine.tick(now())

        self._start(held.group_id, act)


def now() -> float:
    return asyncio.get_running_loop().time()


def _read(settings: GroupSettings, stored: Stored | None) -> AnyGroup:
    if stored is None:
        return ClassicGroup(settings)
    if stored.kind == ConsumerGroup.kind:
        return ConsumerGroup.load(settings, stored, now())
    return ClassicGroup.load(settings, stored, now())


def _give(ticket: object, answer: Body | Refused) -> None:
    assert isinstance(ticket, asyncio.Future)
    if ticket.done():
        return  # who asked has gone
    if isinstance(answer, Refused):
        ticket.set_exception(answer)
        ticket.exception()  # seen, even if nobody waits any more
    else:
        ticket.set_result(answer)


def over(held: Held) -> Refused:
    """The refusal for a group whose term is over."""
    return Refused(ErrorCode.NOT_COORDINATOR, f"another gateway coordinates {held.group_id!r} now")
