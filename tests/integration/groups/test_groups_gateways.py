"""Groups whose gateway restarts, or dies: real consumers go on, and nobody reads what another reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from headgate.embedded import Endpoints
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.commits import OFFSET_COMMIT, CommitPartition, CommitTopic, OffsetCommitRequest
from tests.gateway.raw import RawClient
from tests.gateway.servers import new_database, running
from tests.integration.groups.conftest import FAST
from tests.integration.groups.members import create_topic, generation, member, poll_until, share_out, write

KINDS: dict[str, dict[str, Any]] = {
    "classic": {"partition_assignment_strategy": "range"},
    "consumer": {"group_protocol": "consumer"},
}
_PROGRAM = """
import asyncio, sys
from headgate.gateway import Gateway, GatewayOptions
from tests.integration.groups.conftest import FAST

async def serve():
    gateway = await Gateway.start(GatewayOptions(postgres_url=sys.argv[1], port=0), group_settings=FAST)
    print(gateway.options.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextmanager
def doomed(url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A gateway as a process of its own, so that it can be killed."""
    command = [sys.executable, "-c", _PROGRAM, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture(scope="module")
def database(endpoints: Endpoints) -> Iterator[str]:
    """Of its own: a gateway of other tests could coordinate a group here, too."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_restart_of_the_gateway_is_no_rebalance(database: str, name: str, kind: dict[str, Any]) -> None:
    with ExitStack() as stack:
        with running(database, group_settings=FAST) as gateway:
            port, bootstrap = gateway.port, gateway.bootstrap
            create_topic(bootstrap, name, 4)
            members = [stack.enter_context(member(bootstrap, name, name, **kind)) for _ in range(2)]
            poll_until(members, lambda: share_out(members, 4))
            shares, before = [each.partitions for each in members], generation(database, name)
            rebalances = [each.rebalances for each in members]
        with running(database, group_settings=FAST, port=port):
            write(bootstrap, name, [str(n) for n in range(8)], 4)
            poll_until(members, lambda: sum(len(each.values) for each in members) == 8)
            for each in members:
                each.consumer.commit(asynchronous=False)
            assert generation(database, name) == before
            assert [each.partitions for each in members] == shares
            assert [each.rebalances for each in members] == rebalances
            stack.close()  # they leave while there is a gateway to tell


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_another_gateway_takes_over_when_the_coordinator_is_killed(
    database: str, name: str, kind: dict[str, Any]
) -> None:
    with running(database, group_settings=FAST) as survivor, doomed(database) as (process, port), ExitStack() as stack:
        bootstrap = f"127.0.0.1:{port},{survivor.bootstrap}"
        create_topic(bootstrap, name, 4)
        with RawClient(port) as raw:  # whoever is asked first coordinates
            raw.ask(OFFSET_COMMIT, 8, _commit(name, name, 0))
        members = [stack.enter_context(member(bootstrap, name, name, **kind)) for _ in range(2)]
        poll_until(members, lambda: share_out(members, 4))
        assert _coordinator(database, name) == f"127.0.0.1:{port}"
        shares, before = [each.partitions for each in members], generation(database, name)

        process.kill()
        process.wait()
        with psycopg.connect(database, autocommit=True) as connection:  # it would be missed in five seconds anyway
            connection.execute("update kafka.brokers set expires_at = now() where port = %s", [port])
        write(survivor.bootstrap, name, [str(n) for n in range(8)], 4)
        poll_until(members, lambda: sum(len(each.values) for each in members) >= 8)
        for each in members:
            each.consumer.commit(asynchronous=False)
        assert _coordinator(database, name) == survivor.bootstrap
        assert (generation(database, name), [each.partitions for each in members]) == (before, shares)
        places = members[0].consumer.committed([TopicPartition(name, n) for n in range(4)])
        assert {each.offset for each in places} == {2}
        with RawClient(survivor.port) as raw:
            answer = raw.ask(OFFSET_COMMIT, 9, _commit(name, name, 1, before - 1))
            assert answer.topics[0].partitions[0].error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            )


def _commit(group: str, topic: str, offset: int, epoch: int = -1) -> OffsetCommitRequest:
    topics = (CommitTopic(topic, partitions=(CommitPartition(0, offset),)),)
    return OffsetCommitRequest(group, epoch, "" if epoch < 0 else "m", topics=topics)


def _coordinator(url: str, group: str) -> str:
    with psycopg.connect(url) as connection:
        found = connection.execute("select coordinator from kafka.consumer_groups where group_id = %s", [group])
        row = found.fetchone()
    assert row is not None
    return str(row[0])
