"""Members of groups, for tests: real consumers that are polled together, and ones made of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from select import select
from struct import pack
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.gateway.raw import RawClient

__all__ = [
    "Member",
    "RawMember",
    "create_topic",
    "generation",
    "member",
    "poll_until",
    "share_out",
    "subscription",
    "write",
]

TIMEOUT_S = 20.0


@dataclass(eq=False)
class Member:
    """A consumer, with what it has read and how often it was told to change."""

    consumer: Consumer
    values: list[str] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    rebalances: int = 0

    def subscribe(self, *topics: str) -> None:
        def count(_: Consumer, __: list[TopicPartition]) -> None:
            self.rebalances += 1

        self.consumer.subscribe(list(topics), on_assign=count, on_revoke=count, on_lost=count)

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if (error := message.error()) is not None:
            self.errors.append(error.code())
        else:
            self.values.append((message.value() or b"").decode())

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


@contextmanager
def member(bootstrap: str, group: str, *topics: str, **settings: Any) -> Iterator[Member]:
    """A librdkafka consumer that has subscribed; it leaves the group at the end, as far as its kind does."""
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            "log_level": 0,
        }
        | ({} if chosen.get("group.protocol") == "consumer" else classic)
        | chosen
    )
    with ExitStack() as stack:
        stack.callback(consumer.close)
        one = Member(consumer)
        one.subscribe(*topics)
        yield one


def poll_until(members: Sequence[Member], condition: Callable[[], bool], what: str = "") -> None:
    """Let all members do their work until something is so."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what or [(each.partitions, each.errors) for each in members]
        for each in members:
            each.poll()


def share_out(members: Sequence[Member], partitions: int) -> bool:
    """Whether every partition of a topic has one reader, and everybody has some."""
    shares = [each.partitions for each in members]
    return all(shares) and sum(map(len, shares)) == partitions == len(set().union(*shares))


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions)])[name].result(TIMEOUT_S)


def write(bootstrap: str, topic: str, values: Sequence[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0})
    for place, value in enumerate(values):
        producer.produce(topic, value, partition=place % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def generation(url: str, group: str) -> int:
    """As it is stored."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select generation from kafka.groups where group_id = %s", [group]).fetchone()
    assert row is not None
    return int(row[0])


def subscription(*topics: str) -> bytes:
    """What a consumer says to its leader."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", -1)


class RawMember:
    """A member of a classic group that does nothing unless it is told to."""

    def __init__(self, port: int, group: str, *topics: str, session_ms: int = 600, instance: str | None = None) -> None:
        self.client = RawClient(port)
        self.group, self.topics, self.session_ms, self.instance = group, topics, session_ms, instance
        self.member_id, self.generation = "", -1

    def close(self) -> None:
        """Go without a word."""
        self.client.socket.close()

    def send_join(self, version: int = 9) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=10_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol("range", subscription(*self.topics)),),
        )
        self.client.send(JOIN_GROUP, version, request)

    def joined(self, version: int = 9) -> JoinGroupResponse:
        """The answer to a join; one that asks for a second join gets it."""
        answer: JoinGroupResponse = self.client.receive(JOIN_GROUP, version)[1]
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.send_join(version)
            return self.joined(version)
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self, version: int = 9) -> JoinGroupResponse:
        self.send_join(version)
        return self.joined(version)

    def learn_id(self, version: int = 9) -> None:
        """Ask for an id; the join with it comes later."""
        self.send_join(version)
        self.member_id = self.client.receive(JOIN_GROUP, version)[1].member_id

    def has_answer(self) -> bool:
        return bool(select([self.client.socket], [], [], 0)[0])

    def sync(self, **fields: Any) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id, **fields
        )
        answer: SyncGroupResponse = self.client.ask(SYNC_GROUP, 5, request)
        return answer

    def heartbeat(self) -> int:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        return int(self.client.ask(HEARTBEAT, 4, request).error_code)
