"""The coordinator: drives the groups whose leases this gateway holds.

A group is in memory while it has members. Requests of one group queue at its lock; each one lets the state machine act,
stores what changed, and answers then. If the store says that the term is over, or does not answer, the group is dropped
from memory and everybody who waits is sent to look for the coordinator again: whoever claims the lease next reads the
group as it was stored.

Heartbeats, which are most of the requests, touch no database. So that a gateway which was cut off does not go on
answering them for a group that another has taken over, the terms are checked every second, and a term that could not be
checked for some seconds is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar
from uuid import UUID

from headgate.gateway.cluster import Broker, Cluster
from headgate.gateway.groups.classic import ClassicGroup
from headgate.gateway.groups.commits import CommitQueue
from headgate.gateway.groups.consumer import ConsumerGroup, Topics
from headgate.gateway.groups.group import Client, Stored
from headgate.gateway.groups.settings import GroupSettings
from headgate.gateway.groups.store import Commit, Committed, GroupStore, Listed, Term
from headgate.gateway.health import Health
from headgate.gateway.store import Store
from headgate.runtime.ending import end
from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from headgate.wire.kafka.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["Coordinator"]

logger = logging.getLogger(__name__)

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup
_T = TypeVar("_T")
_MAX_REGEXES = 1_000
_MAX_NAME_BYTES = 1_000  # of groups and members: both together must fit into an index
_KNOWS_GROUPS = 9  # OffsetCommit's first version that can say that a group does not exist


@dataclass(eq=False)
class _Held:
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


_Act: TypeAlias = Callable[[_Held], Awaitable[_T]]


class Coordinator:
    """The groups of one gateway."""

    def __init__(self, store: Store, cluster: Cluster, settings: GroupSettings) -> None:
        self.settings = settings
        self._catalog = store.catalog
        self._cluster = cluster
        self._store = GroupStore(store.pool)
        self._commits = CommitQueue(self._store)
        self._held: dict[str, _Held] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._checked_at = 0.0
        self._matches: dict[str, tuple[float, frozenset[str]]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._is_closing = False
        store.on_notify("kafka_catalog", lambda _: self._matches.clear())

    @classmethod
    async def open(cls, store: Store, cluster: Cluster, settings: GroupSettings | None = None) -> Coordinator:
        """Begin to coordinate. Groups are claimed when somebody asks for them."""
        coordinator = cls(store, cluster, settings or GroupSettings())
        chores = (
            (coordinator._check_terms, coordinator.settings.lease_check_s),
            (
                coordinator._sweep,
                coordinator.settings.sweep_interval_s,
            ),
        )
        coordinator._chores = [
            asyncio.create_task(_regularly(chore, interval_s, store.health), name="groups")
            for chore, interval_s in chores
        ]
        return coordinator

    async def release(self) -> None:
        """Give all groups up: whoever waits is told to look for another coordinator, which may claim them at once."""
        self._is_closing = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._commits.close()
        for held in list(self._held.values()):
            self._drop(held)
        with suppress(Refused):
            await self._store.release(self._cluster.instance)

    async def close(self) -> None:
        """Stop."""
        await end(*self._chores)
        await self.release()

    # --- members of classic groups ----------------------------------------------------------------------------------

    async def find(self, group_id: str) -> Broker:
        """The gateway that coordinates a group, or should claim it."""
        _check_name(group_id)
        place = await self._store.place(group_id)
        if place.node_id is not None and place.instance is not None:
            return Broker(place.node_id, place.host, place.port, place.instance)
        return self._cluster.choose(f"group {group_id}")

    async def join(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        _check_texts(request.protocol_type, *(each.name for each in request.protocols))
        _check_texts(client.id)
        _check_ids(request.member_id, request.group_instance_id)
        answer: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()

        async def act(held: _Held) -> None:
            self._as_classic(held).join(request, client, answer, _now())

        try:
            await self._run(request.group_id, act)
            return await answer
        except asyncio.CancelledError:
            self._withdraw(request.group_id, answer)
            raise

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        answer: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()

        async def act(held: _Held) -> None:
            _classic(held).sync(request, answer, _now())

        await self._run_known(request.group_id, act)
        return await answer

    async def heartbeat(self, request: HeartbeatRequest) -> None:
        who = request.member_id, request.group_instance_id, request.generation_id
        if (held := self._at_hand(request.group_id)) is not None:
            _classic(held).heartbeat(*who, _now())
            return

        async def act(held: _Held) -> None:
            _classic(held).heartbeat(*who, _now())

        await self._run_known(request.group_id, act)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Let members go, each with its own answer."""

        async def act(held: _Held) -> list[ErrorCode]:
            return [_leave(held, each, _now()) for each in members]

        return await self._run_known(group_id, act)

    # --- members of consumer groups ---------------------------------------------------------------------------------

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        _check_ids(request.member_id, request.instance_id)
        _check_texts(
            request.rack_id or "",
            client.id,
            *(request.subscribed_topic_names or ()),
            request.subscribed_topic_regex or "",
        )
        if sum(map(len, request.subscribed_topic_names or ())) > self.settings.max_member_bytes:
            raise Refused(ErrorCode.INVALID_REQUEST, "the subscription is too long")

        async def act(held: _Held) -> ConsumerGroupHeartbeatResponse:
            group = self._as_consumer(held)
            regexes = group.regexes | ({request.subscribed_topic_regex} if request.subscribed_topic_regex else set())
            topics = Topics(self._topic, {regex: await self._match(regex) for regex in regexes})
            return group.heartbeat(request, client, topics, _now())

        run = self._run if request.member_epoch == 0 else self._run_known
        return await run(request.group_id, act)

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        commits: Sequence[Commit],
        version: int,
    ) -> None:
        """Store offsets for a member: its id, instance id and epoch. All or nothing; raises `Refused`."""
        member_id, instance_id, epoch = member

        async def act(held: _Held) -> tuple[Term, asyncio.Future[bool] | None]:
            held.machine.check_commit(member_id, instance_id, epoch, version, _now())
            if not held.is_stored:
                held.machine.save_new()
            # Queued before anything else can happen to the group: no commit lands after those of the next generation.
            return held.office, self._commits.put(held.office, commits) if commits else None

        if (at_hand := self._at_hand(group_id)) is not None and at_hand.is_stored:
            term, stored = await act(at_hand)
        elif epoch < 0:
            term, stored = await self._run(group_id, act)
        else:
            is_new = version >= _KNOWS_GROUPS
            unknown = ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
            term, stored = await self._run_known(group_id, act, unknown)
        if stored is not None and not await asyncio.shield(stored):
            self._drop_term(term)
            raise Refused(ErrorCode.NOT_COORDINATOR, "another gateway coordinates the group now")

    async def offsets(self, group_id: str, member_id: str | None = None, epoch: int = -1) -> list[Committed]:
        """Every offset of a group, for a member or for anybody."""

        async def act(held: _Held) -> None:
            held.machine.check_fetch(member_id, epoch)

        if (held := self._at_hand(group_id)) is not None:
            await act(held)
        elif await self._is_known(group_id):
            await self._run(group_id, act)
        elif epoch >= 0:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group does not exist")
        await self._commits.settled(group_id)
        return await self._store.offsets(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Forget offsets of topics that nobody in the group reads, by name and partition."""

        async def act(held: _Held) -> list[ErrorCode]:
            group = held.machine
            if not group.is_empty and group.protocol_type != "consumer":
                raise Refused(ErrorCode.NON_EMPTY_GROUP, "the group has members")
            topics = {name: await self._catalog.find(name) for name, _ in partitions}
            read = group.subscribed()
            known = [(topic.id, index) for name, index in partitions if (topic := topics[name]) and name not in read]
            if known and not await self._store.delete_offsets(held.office, known):
                raise _over(held)
            return [_deletable(name in read, topics[name] is not None) for name, _ in partitions]

        return await self._run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    # --- administrators ---------------------------------------------------------------------------------------------

    async def groups(self) -> list[Listed]:
        """The groups of this gateway, and those of nobody for which it is responsible."""
        stored = {each.group_id: each for each in await self._store.all()}
        here = {key: each for key, each in stored.items() if self._is_mine(each)}
        for held in self._held.values():
            if held.group is not None:
                here[held.group_id] = Listed(
                    held.group_id, held.group.kind, held.group.protocol_type, held.group.state, self._cluster.node_id
                )
        return [here[key] for key in sorted(here)]

    async def look(self, group_id: str) -> AnyGroup:
        """A group as it is now, to be read and not changed. Raises `Refused` if there is none."""
        if (held := self._at_hand(group_id)) is not None:
            return held.machine

        async def act(held: _Held) -> AnyGroup:
            return held.machine

        return await self._run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    async def delete(self, group_id: str) -> None:
        """Forget a group without members, and its offsets."""

        async def act(held: _Held) -> None:
            if not held.machine.is_empty:
                raise Refused(ErrorCode.NON_EMPTY_GROUP, "the group has members")
            await self._commits.settled(group_id)
            if not await self._store.delete(held.office):
                raise _over(held)
            self._drop(held)

        await self._run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    # --- groups in memory -------------------------------------------------------------------------------------------

    def _at_hand(self, group_id: str) -> _Held | None:
        """The group, if it is in memory and nobody is changing it."""
        held = self._held.get(group_id)
        if held is None or held.group is None or held.lock.locked() or not self._is_trusted(held):
            return None
        return held

    async def _is_known(self, group_id: str) -> bool:
        """Whether there is such a group, for this gateway to coordinate."""
        _check_name(group_id)
        held = self._held.get(group_id)
        if held is not None and held.group is not None:
            return True
        place = await self._store.place(group_id)
        if place.instance not in (None, self._cluster.instance):
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return place.exists

    async def _run_known(self, group_id: str, act: _Act[_T], otherwise: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> _T:
        """As `_run`, but claims no group that does not exist."""
        if not await self._is_known(group_id):
            raise Refused(otherwise, "the group does not exist")
        return await self._run(group_id, act)

    async def _run(self, group_id: str, act: _Act[_T]) -> _T:
        """Let a group act, store what changed, and answer. Goes on if whoever asked goes away."""
        _check_name(group_id)
        if self._is_closing:
            raise Refused(ErrorCode.NOT_COORDINATOR, "the gateway is closing")
        return await asyncio.shield(self._start(group_id, act))

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits any more

    async def _do(self, group_id: str, act: _Act[_T]) -> _T:
        while True:
            held = self._held.setdefault(group_id, _Held(group_id))
            async with held.lock:
                if self._held.get(group_id) is not held:
                    continue  # it was dropped while this request waited
                if held.group is not None and not self._is_trusted(held):
                    self._drop(held)
                    continue
                if held.group is None:
                    await self._claim(held)
                return await self._act(held, act)

    async def _act(self, held: _Held, act: _Act[_T]) -> _T:
        held.used_at = _now()
        try:
            result = await act(held)
        except Refused:
            await self._settle(held)
            raise
        except BaseException:
            self._drop(held)  # whatever it was, the state as it is stored is sound
            raise
        await self._settle(held)
        return result

    async def _claim(self, held: _Held) -> None:
        try:
            held.claimed_at = _now()
            held.term = await self._store.claim(held.group_id, self._cluster.node_id, self._cluster.instance)
            if held.term is None:
                raise Refused(ErrorCode.NOT_COORDINATOR)
            stored = await self._store.load(held.group_id)
            held.group, held.is_stored = _read(self.settings, stored), stored is not None
        except BaseException:
            self._drop(held)
            raise

    async def _settle(self, held: _Held) -> None:
        """Store, then answer."""
        if held.group is None or self._held.get(held.group_id) is not held:
            return
        changes = held.group.take_changes()
        if changes is not None:
            try:
                is_held = await self._store.save(held.office, changes)
            except BaseException:
                self._drop(held)  # nobody knows whether it was stored
                raise
            if not is_held:
                self._drop(held)
                raise _over(held)
            held.is_stored = True
        for ticket, answer in held.group.take_answers():
            _give(ticket, answer)
        self._schedule(held)

    def _drop(self, held: _Held) -> None:
        """Forget what is in memory, and send everybody who waits elsewhere."""
        if self._held.get(held.group_id) is held:
            del self._held[held.group_id]
        if held.timer is not None:
            held.timer.cancel()
        if held.group is not None:
            unanswered = [ticket for ticket, _ in held.group.take_answers()]
            for ticket in [*held.group.waiting(), *unanswered]:
                _give(ticket, Refused(ErrorCode.NOT_COORDINATOR))
            held.group = None

    def _drop_term(self, term: Term) -> None:
        held = self._held.get(term.group_id)
        if held is not None and held.term == term and not held.lock.locked():
            self._drop(held)

    def _is_trusted(self, held: _Held) -> bool:
        return _now() - max(self._checked_at, held.claimed_at) < self.settings.lease_trust_s

    def _is_mine(self, listed: Listed) -> bool:
        if listed.node_id is not None:
            return listed.node_id == self._cluster.node_id
        return self._cluster.choose(f"group {listed.group_id}").node_id == self._cluster.node_id

    # --- kinds of groups --------------------------------------------------------------------------------------------

    def _as_classic(self, held: _Held) -> ClassicGroup:
        """The group, for who joins it as a classic one: an empty group becomes what its first member wants."""
        group = held.machine
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members use the consumer protocol")
            group = held.group = ClassicGroup(self.settings, generation=group.generation)
        return group

    def _as_consumer(self, held: _Held) -> ConsumerGroup:
        group = held.machine
        if isinstance(group, ClassicGroup):
            if not group.is_idle:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "the group's members use the classic protocol")
            group = held.group = ConsumerGroup(self.settings, epoch=group.generation)
        return group

    def _topic(self, name: str) -> tuple[UUID, int] | None:
        topic = self._catalog.get(name)
        return (topic.uuid, len(topic.parts)) if topic else None

    async def _match(self, regex: str) -> frozenset[str]:
        """The topics that an expression stands for; remembered until topics change."""
        known = self._matches.get(regex)
        if known is not None and known[0] > _now():
            return known[1]
        names = await self._store.matches(regex)
        if len(self._matches) >= _MAX_REGEXES:
            self._matches.clear()
        self._matches[regex] = _now() + self.settings.regex_refresh_s, names
        return names

    # --- time -------------------------------------------------------------------------------------------------------

    def _schedule(self, held: _Held) -> None:
        """Wake up at the group's next deadline. One that moves away is found out when the old one comes."""
        due = held.machine.next_deadline()
        if due is None or (held.timer is not None and not held.timer.cancelled() and held.timer.when() <= due):
            return
        if held.timer is not None:
            held.timer.cancel()
        held.timer = asyncio.get_running_loop().call_at(due, self._wake, held)

    def _wake(self, held: _Held) -> None:
        held.timer = None
        if self._held.get(held.group_id) is not held or self._is_closing:
            return

        async def act(held: _Held) -> None:
            held.machine.tick(_now())

        self._start(held.group_id, act)

    def _withdraw(self, group_id: str, answer: asyncio.Future[JoinGroupResponse]) -> None:
        """Whoever waited has gone, as far as this gateway can see."""
        if group_id not in self._held or self._is_closing:
            return

        async def act(held: _Held) -> None:
            if isinstance(held.machine, ClassicGroup):
                held.machine.withdraw(answer, _now())

        self._start(group_id, act)

    def _start(self, group_id: str, act: _Act[_T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(self._do(group_id, act))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def _check_terms(self) -> None:
        """Drop what another gateway has taken over, and what nobody needs in memory."""
        started = _now()
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
                self._drop(held)
            elif held.machine.is_idle and started - held.used_at > self.settings.idle_s:
                self._drop(held)
                if not held.is_stored:
                    unused.append(term)
        if unused:
            await self._store.forget(unused)

    async def _sweep(self) -> None:
        expired = await self._store.expire(self.settings.offsets_retention_s, self.settings.empty_grace_s)
        if expired:
            logger.info("groups expired", extra={"groups": expired})


async def _regularly(chore: Callable[[], Awaitable[None]], interval_s: float, health: Health) -> None:
    part = f"groups: {chore.__name__.strip('_')}"
    while True:
        await asyncio.sleep(interval_s)
        try:
            await chore()
        except Refused as outage:
            logger.warning("groups wait for the database", extra={"why": str(outage)})
            health.failed(part, outage)
        except Exception as error:
            logger.exception("a chore of the groups failed; it is tried again")
            health.failed(part, repr(error))
        else:
            health.works(part)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _read(settings: GroupSettings, stored: Stored | None) -> AnyGroup:
    if stored is None:
        return ClassicGroup(settings)
    if stored.kind == ConsumerGroup.kind:
        return ConsumerGroup.load(settings, stored, _now())
    return ClassicGroup.load(settings, stored, _now())


def _classic(held: _Held) -> ClassicGroup:
    group = held.machine
    if isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group's members use the consumer protocol")
    return group


def _leave(held: _Held, member: LeavingMember, now: float) -> ErrorCode:
    try:
        _classic(held).leave(member.member_id, member.group_instance_id, now)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def _give(ticket: object, answer: Body | Refused) -> None:
    assert isinstance(ticket, asyncio.Future)
    if ticket.done():
        return  # who asked has gone
    if isinstance(answer, Refused):
        ticket.set_exception(answer)
        ticket.exception()  # seen, even if nobody waits any more
    else:
        ticket.set_result(answer)


def _over(held: _Held) -> Refused:
    return Refused(ErrorCode.NOT_COORDINATOR, f"another gateway coordinates {held.group_id!r} now")


def _deletable(is_read: bool, is_known: bool) -> ErrorCode:
    if is_read:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check_name(group_id: str) -> None:
    if not group_id or "\0" in group_id or len(group_id.encode()) > _MAX_NAME_BYTES:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group needs a name of at most {_MAX_NAME_BYTES} bytes")


def _check_ids(*ids: str | None) -> None:
    _check_texts(*(each or "" for each in ids))
    if any(len((each or "").encode()) > _MAX_NAME_BYTES for each in ids):
        raise Refused(ErrorCode.INVALID_REQUEST, f"a member's id has at most {_MAX_NAME_BYTES} bytes")


def _check_texts(*texts: str) -> None:
    if any("\0" in text for text in texts):
        raise Refused(ErrorCode.INVALID_REQUEST, "a text contains the character 0, which PostgreSQL cannot store")
