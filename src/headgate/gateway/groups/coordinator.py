"""The coordinator: drives the groups whose leases this gateway holds.

Every request becomes an act on a group in memory (`held`): the state machine changes, what changed is stored, and then
it is answered. Heartbeats and commits, which are most of the requests, take a shorter way where a group is at hand and
nobody is changing it: heartbeats touch no database at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import UUID

from headgate.gateway.cluster import Broker, Cluster
from headgate.gateway.groups.checks import check_ids, check_name, check_texts
from headgate.gateway.groups.classic import ClassicGroup
from headgate.gateway.groups.commits import CommitQueue
from headgate.gateway.groups.consumer import ConsumerGroup
from headgate.gateway.groups.group import Client
from headgate.gateway.groups.held import AnyGroup, Held, HeldGroups, now, over
from headgate.gateway.groups.settings import GroupSettings
from headgate.gateway.groups.store import Commit, Committed, GroupStore, Listed, Term
from headgate.gateway.groups.topics import Sight, Sights, TopicIndex
from headgate.gateway.health import Health
from headgate.gateway.store import Store
from headgate.runtime.ending import end
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

_ELSEWHERE = UUID(int=0)  # of no process of ours
_KNOWS_GROUPS = 9  # OffsetCommit's first version that can say that a group does not exist


class Coordinator:
    """The groups of one gateway."""

    def __init__(self, store: Store, cluster: Cluster, settings: GroupSettings) -> None:
        self.settings = settings
        self._catalog = store.catalog
        self._cluster = cluster
        self._store = GroupStore(store.pool)
        self._commits = CommitQueue(self._store)
        self._groups = HeldGroups(self._store, cluster, settings)
        self._topics = TopicIndex(store, self._store, settings.regex_refresh_s)
        self._sights = Sights()
        self._chores: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, store: Store, cluster: Cluster, settings: GroupSettings | None = None) -> Coordinator:
        """Begin to coordinate. Groups are claimed when somebody asks for them."""
        coordinator = cls(store, cluster, settings or GroupSettings())
        chores = (
            (coordinator._groups.check_terms, coordinator.settings.lease_check_s),
            (coordinator._sweep, coordinator.settings.sweep_interval_s),
        )
        coordinator._chores = [
            asyncio.create_task(_regularly(chore, interval_s, store.health), name="groups")
            for chore, interval_s in chores
        ]
        return coordinator

    async def release(self) -> None:
        """Give all groups up: whoever waits is told to look for another coordinator, which may claim them at once."""
        await self._groups.finish()
        await self._commits.close()
        self._groups.drop_all()
        with suppress(Refused):
            await self._store.release(self._cluster.instance)

    async def close(self) -> None:
        """Stop."""
        await end(*self._chores)
        await self.release()

    # --- members of classic groups ----------------------------------------------------------------------------------

    def _refuse_moved(self, group_id: str, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Refuse requests of a group that has moved to another cluster.

        Members hear that they are none: so they let go of their partitions before they look for the coordinator again.
        """
        if group_id in self._catalog.moved_groups:
            raise Refused(code, "the group has moved to another cluster")

    async def find(self, group_id: str) -> Broker:
        """The gateway that coordinates a group, or should claim it; a broker elsewhere if the group has moved."""
        check_name(group_id)
        if (moved := self._catalog.moved_groups.get(group_id)) is not None:
            if moved.node_id is None or moved.host is None or moved.port is None:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is moving to another cluster")
            return Broker(moved.node_id, moved.host, moved.port, _ELSEWHERE)
        place = await self._store.place(group_id)
        if place.node_id is not None and place.instance is not None:
            return Broker(place.node_id, place.host, place.port, place.instance)
        return self._cluster.choose(f"group {group_id}")

    async def join(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        check_texts(request.protocol_type, *(each.name for each in request.protocols))
        check_texts(client.id)
        check_ids(request.member_id, request.group_instance_id)
        self._refuse_moved(request.group_id)
        answer: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()

        async def act(held: Held) -> None:
            self._as_classic(held).join(request, client, answer, now())

        try:
            await self._groups.run(request.group_id, act)
            return await answer
        except asyncio.CancelledError:
            self._withdraw(request.group_id, answer)
            raise

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        self._refuse_moved(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        answer: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()

        async def act(held: Held) -> None:
            _classic(held).sync(request, answer, now())

        await self._groups.run_known(request.group_id, act)
        return await answer

    async def heartbeat(self, request: HeartbeatRequest) -> None:
        self._refuse_moved(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        who = request.member_id, request.group_instance_id, request.generation_id
        if (held := self._groups.at_hand(request.group_id)) is not None:
            _classic(held).heartbeat(*who, now())
            return

        async def act(held: Held) -> None:
            _classic(held).heartbeat(*who, now())

        await self._groups.run_known(request.group_id, act)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Let members go, each with its own answer."""

        async def act(held: Held) -> list[ErrorCode]:
            return [_leave(held, each, now()) for each in members]

        return await self._groups.run_known(group_id, act)

    # --- members of consumer groups ---------------------------------------------------------------------------------

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, sight: Sight
    ) -> ConsumerGroupHeartbeatResponse:
        check_ids(request.member_id, request.instance_id)
        is_joining = request.member_epoch == 0
        self._refuse_moved(request.group_id, ErrorCode.NOT_COORDINATOR if is_joining else ErrorCode.UNKNOWN_MEMBER_ID)
        check_texts(
            request.rack_id or "",
            client.id,
            *(request.subscribed_topic_names or ()),
            request.subscribed_topic_regex or "",
        )
        if sum(map(len, request.subscribed_topic_names or ())) > self.settings.max_member_bytes:
            raise Refused(ErrorCode.INVALID_REQUEST, "the subscription is too long")

        async def act(held: Held) -> ConsumerGroupHeartbeatResponse:
            group = self._as_consumer(held)
            regexes = group.regexes | ({request.subscribed_topic_regex} if request.subscribed_topic_regex else set())
            sights = self._sights.of(request.group_id, regexes, sight)
            return group.heartbeat(request, client, await self._topics.topics(sights), now())

        run = self._groups.run if is_joining else self._groups.run_known
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
        self._refuse_moved(group_id, ErrorCode.UNKNOWN_MEMBER_ID if epoch >= 0 else ErrorCode.NOT_COORDINATOR)

        async def act(held: Held) -> tuple[Term, asyncio.Future[bool] | None]:
            held.machine.check_commit(member_id, instance_id, epoch, version, now())
            if not held.is_stored:
                held.machine.save_new()
            # Queued before anything else can happen to the group: no commit lands after those of the next generation.
            return held.office, self._commits.put(held.office, commits) if commits else None

        if (at_hand := self._groups.at_hand(group_id)) is not None and at_hand.is_stored:
            term, stored = await act(at_hand)
        elif epoch < 0:
            term, stored = await self._groups.run(group_id, act)
        else:
            is_new = version >= _KNOWS_GROUPS
            unknown = ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
            term, stored = await self._groups.run_known(group_id, act, unknown)
        if stored is not None and not await asyncio.shield(stored):
            self._groups.drop_term(term)
            raise Refused(ErrorCode.NOT_COORDINATOR, "another gateway coordinates the group now")

    async def commit_later(
        self, group_id: str, member: tuple[str, str | None, int], pend: Callable[[Term], Awaitable[ErrorCode]]
    ) -> None:
        """Let a transaction keep offsets of a group. While it does, nothing else happens to the group.

        A producer that names no member, as those before KIP-447, is fenced by its transactional id alone.
        """
        member_id, instance_id, epoch = member
        is_member = epoch >= 0 or bool(member_id) or instance_id is not None
        self._refuse_moved(group_id)

        async def act(held: Held) -> tuple[Term, ErrorCode | None]:
            if is_member:
                held.machine.check_commit(member_id, instance_id, epoch, _KNOWS_GROUPS, now())
            if not held.is_stored:  # a group that comes to be by this must be there when the transaction commits
                held.machine.save_new()
                return held.office, None
            return held.office, await pend(held.office)

        code: ErrorCode | None = None
        while code is None:
            if epoch < 0:
                term, code = await self._groups.run(group_id, act)
            else:
                term, code = await self._groups.run_known(group_id, act, ErrorCode.ILLEGAL_GENERATION)
        if code is ErrorCode.NOT_COORDINATOR:
            self._groups.drop_term(term)
        if code is not ErrorCode.NONE:
            raise Refused(code)

    async def offsets(self, group_id: str, member_id: str | None = None, epoch: int = -1) -> list[Committed]:
        """Every offset of a group, for a member or for anybody."""
        self._refuse_moved(group_id)

        async def act(held: Held) -> None:
            held.machine.check_fetch(member_id, epoch)

        if (held := self._groups.at_hand(group_id)) is not None:
            await act(held)
        elif await self._groups.is_known(group_id):
            await self._groups.run(group_id, act)
        elif epoch >= 0:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group does not exist")
        await self._commits.settled(group_id)
        return await self._store.offsets(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Forget offsets of topics that nobody in the group reads, by name and partition."""

        async def act(held: Held) -> list[ErrorCode]:
            group = held.machine
            if not group.is_empty and group.protocol_type != "consumer":
                raise Refused(ErrorCode.NON_EMPTY_GROUP, "the group has members")
            topics = {name: await self._catalog.find(name) for name, _ in partitions}
            read = group.subscribed()
            known = [(topic.id, index) for name, index in partitions if (topic := topics[name]) and name not in read]
            if known and not await self._store.delete_offsets(held.office, known):
                raise over(held)
            return [_deletable(name in read, topics[name] is not None) for name, _ in partitions]

        return await self._groups.run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    # --- administrators ---------------------------------------------------------------------------------------------

    async def groups(self) -> list[Listed]:
        """The groups of this gateway, and those of nobody for which it is responsible."""
        stored = {each.group_id: each for each in await self._store.all()}
        moved = self._catalog.moved_groups
        here = {key: each for key, each in stored.items() if key not in moved and self._is_mine(each)}
        for held in self._groups:
            group = held.machine
            here[held.group_id] = Listed(
                held.group_id, group.kind, group.protocol_type, group.state, self._cluster.node_id
            )
        return [here[key] for key in sorted(here)]

    async def look(self, group_id: str) -> AnyGroup:
        """A group as it is now, to be read and not changed. Raises `Refused` if there is none."""
        self._refuse_moved(group_id)
        if (held := self._groups.at_hand(group_id)) is not None:
            return held.machine

        async def act(held: Held) -> AnyGroup:
            return held.machine

        return await self._groups.run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    async def delete(self, group_id: str) -> None:
        """Forget a group without members, and its offsets."""

        async def act(held: Held) -> None:
            if not held.machine.is_empty:
                raise Refused(ErrorCode.NON_EMPTY_GROUP, "the group has members")
            await self._commits.settled(group_id)
            if not await self._store.delete(held.office):
                raise over(held)
            self._groups.drop(held)

        await self._groups.run_known(group_id, act, ErrorCode.GROUP_ID_NOT_FOUND)

    def _is_mine(self, listed: Listed) -> bool:
        if listed.node_id is not None:
            return listed.node_id == self._cluster.node_id
        return self._cluster.choose(f"group {listed.group_id}").node_id == self._cluster.node_id

    # --- kinds of groups --------------------------------------------------------------------------------------------

    def _as_classic(self, held: Held) -> ClassicGroup:
        """The group, for who joins it as a classic one: an empty group becomes what its first member wants."""
        group = held.machine
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members use the consumer protocol")
            group = held.group = ClassicGroup(self.settings, generation=group.generation)
        return group

    def _as_consumer(self, held: Held) -> ConsumerGroup:
        group = held.machine
        if isinstance(group, ClassicGroup):
            if not group.is_idle:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "the group's members use the classic protocol")
            group = held.group = ConsumerGroup(self.settings, epoch=group.generation)
        return group

    def _withdraw(self, group_id: str, answer: asyncio.Future[JoinGroupResponse]) -> None:
        """Whoever waited has gone, as far as this gateway can see."""

        async def act(held: Held) -> None:
            if isinstance(held.machine, ClassicGroup):
                held.machine.withdraw(answer, now())

        self._groups.run_later(group_id, act)

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


def _classic(held: Held) -> ClassicGroup:
    group = held.machine
    if isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group's members use the consumer protocol")
    return group


def _leave(held: Held, member: LeavingMember, now: float) -> ErrorCode:
    try:
        _classic(held).leave(member.member_id, member.group_instance_id, now)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def _deletable(is_read: bool, is_known: bool) -> ErrorCode:
    if is_read:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
