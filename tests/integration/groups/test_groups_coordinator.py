"""Coordinators of several gateways on one database: who may answer, and what survives the one that may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from headgate.gateway.cluster import Cluster
from headgate.gateway.groups import Client, Commit, Coordinator, GroupSettings
from headgate.gateway.options import HostPort
from headgate.gateway.store import Store, Topic
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from headgate.wire.kafka.messages.membership import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
)
from headgate.wire.kafka.refusal import Refused
from tests.integration.groups.conftest import FAST
from tests.integration.groups.members import subscription

CLIENT = Client("test", "/127.0.0.1", 9)
SETTINGS = replace(FAST, initial_rebalance_delay_s=0.01, min_session_timeout_ms=100)


@dataclass
class Node:
    """A gateway without its server."""

    store: Store
    cluster: Cluster
    coordinator: Coordinator

    async def die(self) -> None:
        """Fall silent, as far as the others can see; the process itself does not know."""
        assert self.cluster._beating is not None
        self.cluster._beating.cancel()
        async with self.store.pool.connection() as connection:
            await connection.execute(
                "update kafka.brokers set expires_at = now() where node_id = %s", (self.cluster.node_id,)
            )


@asynccontextmanager
async def nodes(database: str, count: int, settings: GroupSettings = SETTINGS) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_node(database, settings, place)) for place in range(count)]


@asynccontextmanager
async def _node(database: str, settings: GroupSettings, place: int) -> AsyncIterator[Node]:
    store = await Store.open(database)
    cluster = await Cluster.join(store.pool, HostPort(f"host-{uuid4().hex[:6]}", 9000 + place), store.health)
    coordinator = await Coordinator.open(store, cluster, settings)
    try:
        yield Node(store, cluster, coordinator)
    finally:
        await coordinator.close()
        await cluster.leave()
        await store.close()


def join_request(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    settings: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (JoinGroupProtocol("range", subscription("t")),),
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **(settings | fields))


async def join(node: Node, group: str, **fields: Any) -> JoinGroupResponse:
    """Join as a new member; the first answer is the member's id."""
    first = await node.coordinator.join(join_request(group, **fields), CLIENT)
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return first
    return await node.coordinator.join(join_request(group, first.member_id, **fields), CLIENT)


async def sync(node: Node, group: str, joined: JoinGroupResponse) -> bytes:
    assignments = tuple(MemberAssignment(each.member_id, each.member_id.encode()) for each in joined.members)
    answer = await node.coordinator.sync(
        SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignments)
    )
    return answer.assignment


async def beat(node: Node, group: str, joined: JoinGroupResponse) -> ErrorCode:
    return await code_of(node.coordinator.heartbeat(HeartbeatRequest(group, joined.generation_id, joined.member_id)))


async def commit(node: Node, group: str, joined: JoinGroupResponse, topic: Topic, offset: int) -> ErrorCode:
    who = joined.member_id, None, joined.generation_id
    return await code_of(node.coordinator.commit(group, who, [Commit(topic.id, 0, offset, -1, "")], 8))


async def code_of(work: Awaitable[object]) -> ErrorCode:
    try:
        await work
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


async def offsets(node: Node, group: str) -> list[int]:
    return [each.offset for each in await node.coordinator.offsets(group)]


def run(scenario: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  the database has no event to wait for
            await asyncio.sleep(0.02)


async def stored_state(node: Node, group: str) -> tuple[str, int] | None:
    async with node.store.pool.connection() as connection:
        rows = await connection.execute("select state, generation from kafka.groups where group_id = %s", (group,))
        return await rows.fetchone()


# --- classic groups -------------------------------------------------------------------------------------------------


def test_members_live_on_when_their_coordinator_dies(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 2) as (old, new):
            topic = await old.store.catalog.create(name, 1, {})
            joined = await join(old, name)
            assert await sync(old, name, joined) == joined.member_id.encode()
            assert await commit(old, name, joined, topic, 5) is ErrorCode.NONE
            assert (await new.coordinator.find(name)).node_id == old.cluster.node_id
            assert await beat(new, name, joined) is ErrorCode.NOT_COORDINATOR

            await old.die()
            assert await beat(new, name, joined) is ErrorCode.NONE
            assert (await new.coordinator.find(name)).node_id == new.cluster.node_id
            assert await commit(new, name, joined, topic, 7) is ErrorCode.NONE
            # The old one may still think that it coordinates: whatever it accepts, it cannot store.
            assert await commit(old, name, joined, topic, 6) is ErrorCode.NOT_COORDINATOR
            assert await beat(old, name, joined) is ErrorCode.NOT_COORDINATOR
            assert await offsets(new, name) == [7]

            leaving = [LeavingMember(joined.member_id)]
            assert await new.coordinator.leave(name, leaving) == [ErrorCode.NONE]
            assert (await join(new, name)).generation_id == joined.generation_id + 2

    run(scenario())


def test_members_live_on_when_the_gateway_restarts(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (old,):
            joined = await join(old, name)
            await sync(old, name, joined)
        async with nodes(database, 1) as (new,):
            assert await beat(new, name, joined) is ErrorCode.NONE
            assert await sync(new, name, joined) == joined.member_id.encode()
            assert await stored_state(new, name) == ("Stable", joined.generation_id)

    run(scenario())


def test_who_waits_is_sent_to_the_new_coordinator(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 2) as (old, new):
            joined = await join(old, name)
            await sync(old, name, joined)
            waiting = asyncio.create_task(code_of(join(old, name)))  # the first member would have to join again
            await until(lambda: _is(old, name, "PreparingRebalance"))
            await old.die()
            assert await beat(new, name, joined) is ErrorCode.NONE
            assert await waiting is ErrorCode.NOT_COORDINATOR  # found out by the check, without any request

    run(scenario())


async def _has_members(node: Node, group: str, count: int) -> bool:
    return len((await node.coordinator.look(group)).members) == count


async def _is(node: Node, group: str, state: str) -> bool:
    return (await node.coordinator.look(group)).state == state


def test_only_one_of_many_claims_a_group(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 4) as everybody:
            codes = await asyncio.gather(
                *(code_of(node.coordinator.join(join_request(name), CLIENT)) for node in everybody)
            )
            assert sorted(codes) == [ErrorCode.NONE, *[ErrorCode.NOT_COORDINATOR] * 3]

    run(scenario())


def test_a_gateway_that_cannot_check_its_terms_answers_no_heartbeat(database: str, name: str) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, lease_check_s=60.0, lease_trust_s=0.2)
        async with nodes(database, 2, settings) as (old, new):
            joined = await join(old, name)
            await sync(old, name, joined)
            await old.die()
            assert await beat(new, name, joined) is ErrorCode.NONE
            await until(lambda: _refuses(old, name, joined))

    run(scenario())


async def _refuses(node: Node, group: str, joined: JoinGroupResponse) -> bool:
    return await beat(node, group, joined) is ErrorCode.NOT_COORDINATOR


def test_a_lost_connection_costs_a_retry_and_no_more(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            topic = await node.store.catalog.create(name, 1, {})
            joined = await join(node, name)
            await sync(node, name, joined)
            async with node.store.pool.connection() as connection:
                # Every connection but this one, so that the next statements of the pool fail.
                await connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )

            async def has_committed() -> bool:
                code = await commit(node, name, joined, topic, 9)
                assert code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
                return code is ErrorCode.NONE

            await until(has_committed)
            assert await offsets(node, name) == [9]
            assert await beat(node, name, joined) is ErrorCode.NONE

    run(scenario())


def test_a_member_that_falls_silent_is_given_up(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            joined = await join(node, name, session_timeout_ms=150)
            await sync(node, name, joined)
            await until(lambda: _is_stored(node, name, ("Empty", joined.generation_id + 1)))
            assert await beat(node, name, joined) is ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


async def _is_stored(node: Node, group: str, state: tuple[str, int]) -> bool:
    return await stored_state(node, group) == state


def test_who_goes_away_while_waiting_holds_nobody_up(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            joined = await join(node, name)
            await sync(node, name, joined)
            gone = asyncio.create_task(join(node, name))
            await until(lambda: _is(node, name, "PreparingRebalance"))
            gone.cancel()
            await until(lambda: _has_members(node, name, 1))
            alone = await node.coordinator.join(join_request(name, joined.member_id), CLIENT)
            assert [each.member_id for each in alone.members] == [joined.member_id]

    run(scenario())


# --- consumer groups ------------------------------------------------------------------------------------------------


async def consumer_beat(node: Node, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    async def everything(names: Collection[str]) -> Collection[str]:
        return names

    return await node.coordinator.consumer_heartbeat(request, replace(CLIENT, version=1), everything)


def test_a_consumer_keeps_its_epoch_when_the_coordinator_changes(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 2) as (old, new):
            topic = await old.store.catalog.create(name, 3, {})
            enter = ConsumerGroupHeartbeatRequest(
                group_id=name, member_id="m", rebalance_timeout_ms=5000, subscribed_topic_names=(name,)
            )
            entered = await consumer_beat(old, enter)
            assert entered.assignment is not None
            assert entered.assignment.topic_partitions[0].partitions == (0, 1, 2)
            await old.die()
            stay = ConsumerGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=entered.member_epoch)
            stayed = await consumer_beat(new, stay)
            assert (stayed.member_epoch, stayed.assignment) == (entered.member_epoch, None)

            async def store(epoch: int) -> ErrorCode:
                commits = [Commit(topic.id, 0, 4, -1, "")]
                return await code_of(new.coordinator.commit(name, ("m", None, epoch), commits, 9))

            assert await store(entered.member_epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
            assert await store(entered.member_epoch) is ErrorCode.NONE
            assert await code_of(new.coordinator.offsets(name, "m", 99)) is ErrorCode.STALE_MEMBER_EPOCH
            assert await code_of(new.coordinator.offsets(name, "m", entered.member_epoch)) is ErrorCode.NONE

    run(scenario())


HARD = "(x+)(x+)(x+)(x+)(x+)(x+)-\\1\\2\\3\\4\\5\\6"  # every way to cut the name is tried, and none fits


@pytest.mark.parametrize("regex", ["(", "a**", HARD], ids=["open", "twice", "hard"])
def test_an_expression_that_is_none_or_takes_too_long_is_refused(database: str, name: str, regex: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            await node.store.catalog.create("x" * (100 + len(regex)) + "-" + "x" * 99, 1, {})
            request = ConsumerGroupHeartbeatRequest(
                group_id=name, member_id="m", rebalance_timeout_ms=5000, subscribed_topic_regex=regex
            )
            assert await code_of(consumer_beat(node, request)) is ErrorCode.INVALID_REGULAR_EXPRESSION

    run(scenario())


# --- offsets --------------------------------------------------------------------------------------------------------


def test_commits_of_many_groups_are_stored_in_order(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            topic = await node.store.catalog.create(name, 1, {})
            groups = [f"{name}-{number}" for number in range(5)]
            work = [
                node.coordinator.commit(group, ("", None, -1), [Commit(topic.id, 0, offset, 3, f"ät \0 {offset}")], 8)
                for offset in range(20)
                for group in groups
            ]
            await asyncio.gather(*work)
            for group in groups:
                (stored,) = await node.coordinator.offsets(group)
                assert (stored.offset, stored.leader_epoch, stored.metadata) == (19, 3, "ät \0 19")
            assert {each.group_id for each in await node.coordinator.groups()} >= set(groups)

    run(scenario())


def test_offsets_go_with_their_topic_and_group(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            topic = await node.store.catalog.create(name, 2, {})
            commits = [Commit(topic.id, index, 8, -1, "") for index in range(2)]
            await node.coordinator.commit(name, ("", None, -1), commits, 8)
            deleted = await node.coordinator.delete_offsets(name, [(name, 0), ("none", 0)])
            assert deleted == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert [each.partition for each in await node.coordinator.offsets(name)] == [1]
            await node.store.catalog.delete(name)
            await node.store.catalog.create(name, 2, {})
            assert await node.coordinator.offsets(name) == []
            await node.coordinator.delete(name)
            assert await stored_state(node, name) is None
            assert await code_of(node.coordinator.delete(name)) is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario())


def test_who_asks_for_a_group_that_is_none_leaves_no_trace(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            assert await node.coordinator.offsets(name) == []
            assert await code_of(node.coordinator.look(name)) is ErrorCode.GROUP_ID_NOT_FOUND
            assert await code_of(node.coordinator.leave(name, [LeavingMember("m")])) is ErrorCode.UNKNOWN_MEMBER_ID
            assert not await _has_lease(node, name)

    run(scenario())


def test_a_group_that_never_came_to_be_is_forgotten(database: str, name: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1, replace(SETTINGS, idle_s=0.05, lease_check_s=0.05)) as (node,):
            first = await node.coordinator.join(join_request(name, session_timeout_ms=100), CLIENT)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert await _has_lease(node, name)
            await until(lambda: _has_no_lease(node, name))  # the member never joined with its id

    run(scenario())


async def _has_lease(node: Node, group: str) -> bool:
    async with node.store.pool.connection() as connection:
        rows = await connection.execute("select from kafka.group_leases where group_id = %s", (group,))
        return await rows.fetchone() is not None


async def _has_no_lease(node: Node, group: str) -> bool:
    return not await _has_lease(node, group)


@pytest.mark.parametrize("group", ["", "a\0b", "x" * 1001], ids=["empty", "zero", "long"])
def test_a_name_that_cannot_be_stored_is_refused(database: str, group: str) -> None:
    async def scenario() -> None:
        async with nodes(database, 1) as (node,):
            for work in (
                node.coordinator.join(join_request(group), CLIENT),
                node.coordinator.offsets(group),
                node.coordinator.find(group),
                node.coordinator.delete(group),
                node.coordinator.commit(group, ("", None, -1), [], 8),
            ):
                assert await code_of(work) is ErrorCode.INVALID_GROUP_ID

    run(scenario())


def test_a_group_that_nobody_uses_expires(database: str, name: str) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, offsets_retention_s=3600, empty_grace_s=600, sweep_interval_s=0.05)
        async with nodes(database, 1, settings) as (node,):
            topic = await node.store.catalog.create(name, 1, {})
            old, young, used = f"{name}-old", f"{name}-young", f"{name}-used"
            for group in (old, young):
                await node.coordinator.commit(group, ("", None, -1), [Commit(topic.id, 0, 1, -1, "")], 8)
            joined = await join(node, used)
            await sync(node, used, joined)
            assert await commit(node, used, joined, topic, 1) is ErrorCode.NONE
            async with node.store.pool.connection() as connection:
                await connection.execute(
                    "update kafka.groups set changed_at = now() - interval '2 hours' where group_id like %s",
                    (f"{name}-%",),
                )
                await connection.execute(
                    "update kafka.group_offsets set committed_at = now() - interval '2 hours' where group_id = any(%s)",
                    ([old, used],),
                )
            await until(lambda: _is_gone(node, old))
            assert await offsets(node, young) == [1]
            assert await offsets(node, used) == [1]

    run(scenario())


async def _is_gone(node: Node, group: str) -> bool:
    return await stored_state(node, group) is None
