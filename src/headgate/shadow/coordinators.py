"""Offsets of consumer groups at another cluster, asked of and told to the groups' coordinators.

By our own client: librdkafka's administrator ends the whole process if a coordinator still loads its groups while it is
asked for their offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from headgate.shadow.client import Client
from headgate.shadow.errors import kafka_error
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.commits import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    CommitPartition,
    CommitTopic,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from headgate.wire.kafka.messages.membership import FIND_COORDINATOR, FindCoordinatorRequest

__all__ = ["Commit", "commit_offsets", "committed_offsets"]

# Up to these versions one group is asked for at a time, and topics go by their names.
_FIND, _FETCH, _COMMIT = 3, 7, 8
_BUSY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
# What a coordinator says of a group that has members to somebody who is none.
_IN_USE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
_PAUSE_S = 0.1
Place = tuple[str, int]  # a topic and the number of a partition


class Commit(msgspec.Struct, frozen=True):
    """An offset to store, with the remark of the consumer that had it."""

    offset: int
    metadata: str = ""


def committed_offsets(client: Client, group: str) -> dict[Place, int]:
    """Return the offsets that a group has committed there."""
    found: dict[Place, int] = {}

    def ask() -> int:
        found.clear()
        connection = client.broker(_coordinator(client, group))
        request = OffsetFetchRequest(group_id=group, topics=None)
        answer = connection.call(OFFSET_FETCH, request, connection.version(OFFSET_FETCH, _FETCH))
        errors = {answer.error_code}
        for topic in answer.topics:
            errors |= {each.error_code for each in topic.partitions}
            found.update({(topic.name, each.partition_index): each.committed_offset for each in topic.partitions})
        return _worst(errors)

    _until_ready(client, group, ask)
    return {place: offset for place, offset in found.items() if offset >= 0}


def commit_offsets(client: Client, group: str, offsets: Mapping[Place, Commit]) -> bool:
    """Store offsets for a group that has no members; false if it has some: then nothing is stored."""
    topics: dict[str, list[CommitPartition]] = {}
    for (topic, partition), commit in offsets.items():
        topics.setdefault(topic, []).append(CommitPartition(partition, commit.offset, -1, commit.metadata))
    named = tuple(CommitTopic(name, partitions=tuple(partitions)) for name, partitions in topics.items())

    def tell() -> int:
        connection = client.broker(_coordinator(client, group))
        request = OffsetCommitRequest(group, topics=named)
        answer = connection.call(OFFSET_COMMIT, request, connection.version(OFFSET_COMMIT, _COMMIT))
        return _worst({each.error_code for topic in answer.topics for each in topic.partitions})

    return _until_ready(client, group, tell)


def _worst(errors: set[int]) -> int:
    """One of the errors, if there are any: those that pass by themselves last."""
    real = sorted(errors - {ErrorCode.NONE}, key=lambda code: code in _BUSY)
    return real[0] if real else ErrorCode.NONE


def _coordinator(client: Client, group: str) -> tuple[int, str, int]:
    """The coordinator's node, host and port."""
    found: list[tuple[int, str, int]] = []

    def ask() -> int:
        connection = client.any_broker()
        request = FindCoordinatorRequest(group)
        answer = connection.call(FIND_COORDINATOR, request, connection.version(FIND_COORDINATOR, _FIND))
        found[:] = [(answer.node_id, answer.host, answer.port)]
        return answer.error_code

    _until_ready(client, group, ask)
    return found[0]


def _until_ready(client: Client, group: str, step: Callable[[], int]) -> bool:
    """Repeat a step until it meets a coordinator that is ready; false if the group has members."""
    deadline = time.monotonic() + client.cluster.timeout_s
    while error := step():
        if error in _IN_USE:
            return False
        if error not in _BUSY or time.monotonic() > deadline:
            raise kafka_error(error, f"group {group}")
        time.sleep(_PAUSE_S)  # nothing tells when a coordinator is ready
    return True
