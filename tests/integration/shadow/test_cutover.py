"""A cut-over between two clusters of gateways, while producers and consumers go on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg.types.json import Jsonb

from headgate.embedded import Endpoints
from headgate.model import OccupiedError, StateError
from headgate.shadow.cluster import Cluster
from headgate.shadow.cutover import Patience, Target, cut_over, make_plan, roll_back
from headgate.shadow.cutover.plan import progress
from tests.gateway.servers import GatewayThread, new_database, running
from tests.integration.shadow.mirroring import Mirror, WayBack

TIMEOUT_S = 60.0
LINK = "to-kafka"
PARTITIONS = 3


def target_of(servers: str) -> Target:
    return Target(Cluster(servers=servers, timeout_s=TIMEOUT_S))


@dataclass
class Clusters:
    """The cluster that clients leave, and the one that they go to."""

    here: GatewayThread
    there: GatewayThread
    url: str

    @property
    def target(self) -> Target:
        return target_of(self.there.bootstrap)


@pytest.fixture
def clusters(endpoints: Endpoints) -> Iterator[Clusters]:
    assert endpoints.postgres_url is not None
    with ExitStack() as opened:
        here_url, there_url = (opened.enter_context(new_database(endpoints.postgres_url)) for _ in range(2))
        here = opened.enter_context(running(here_url))
        there = opened.enter_context(running(there_url))
        with psycopg.connect(there_url, autocommit=True) as connection:  # a broker id that is not in both
            connection.execute("alter table kafka.brokers alter node_id restart with 101")
            connection.execute("delete from kafka.brokers")
        there.stop()
        yield Clusters(here, opened.enter_context(running(there_url)), here_url)


class Mirroring:
    """The mirror, again and again, in a thread of its own."""

    def __init__(self, clusters: Clusters) -> None:
        self._mirror = Mirror(clusters.url, clusters.there.bootstrap, name=LINK).ensure()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Mirroring:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            self._mirror.run()


def prepare(clusters: Clusters, topic: str) -> None:
    """A topic on both sides, with other offsets there, and a link between them that has seen it."""
    for gateway in (clusters.here, clusters.there):
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    filler = Producer({"bootstrap.servers": clusters.there.bootstrap, "log_level": 0})
    for number in range(PARTITIONS):
        for _ in range(7 + number):
            filler.produce(topic, b"before", partition=number)
    assert filler.flush(TIMEOUT_S) == 0
    admin = AdminClient({"bootstrap.servers": clusters.there.bootstrap, "log_level": 0})
    ends = [TopicPartition(topic, number, 7 + number) for number in range(PARTITIONS)]
    for future in admin.delete_records(ends).values():
        future.result(TIMEOUT_S)
    Mirror(clusters.url, clusters.there.bootstrap, name=LINK).ensure().run()


@dataclass
class Traffic:
    """A producer that never stops, and consumers in a group that commit what they have read."""

    sent: int = 0
    failed: list[KafkaError] = field(default_factory=list)
    read: Counter[bytes] = field(default_factory=Counter)
    per_key: dict[bytes, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def await_read(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.read) >= count, TIMEOUT_S), (count, len(self.read))

    def produce(self, servers: str, topic: str) -> None:
        producer = Producer({"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True, "linger.ms": 2})

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.failed.append(error)

        while not self.is_over.wait(0.002):
            producer.produce(topic, b"%d" % self.sent, b"k%d" % (self.sent % 10), on_delivery=delivered)
            self.sent += 1
            producer.poll(0)
        if left := producer.flush(TIMEOUT_S):
            self.problems.append(f"{left} messages were not delivered")

    def consume(self, servers: str, topic: str, group: str, stop: threading.Event, **settings: Any) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "log_level": 0,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    self.problems.append(str(error))
                continue
            self._note(message)
            self._commit(consumer, message)
        consumer.close()

    def _commit(self, consumer: Consumer, message: Message) -> None:
        """While a group is shared out anew, the epochs of its members are stale for a moment: try again."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.STALE_MEMBER_EPOCH and time.monotonic() < deadline:
                    continue
                self.problems.append(f"commit: {error}")
            return

    def _note(self, message: Message) -> None:
        with self.changed:
            value = message.value() or b""
            self.read[value] += 1
            self.per_key.setdefault(message.key() or b"", []).append(int(value))
            self.changed.notify_all()


@contextmanager
def threads(*works: threading.Thread) -> Iterator[None]:
    for work in works:
        work.start()
    yield
    for work in works:
        work.join(TIMEOUT_S)
        assert not work.is_alive()


def start_group(clusters: Clusters, topic: str, group: str) -> None:
    """Offsets from which the group begins: nobody falls back to a reset."""
    consumer = Consumer({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, number, 0) for number in range(PARTITIONS)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_live_clients_move_and_nothing_is_lost_or_doubled(clusters: Clusters, protocol: str) -> None:
    topic, group = "orders", "billing"
    prepare(clusters, topic)
    start_group(clusters, topic, group)
    traffic, stop = Traffic(), threading.Event()
    said: list[str] = []
    settings = {"group_protocol": "consumer"} if protocol == "consumer" else {"session_timeout_ms": 6000}
    producing = threading.Thread(target=traffic.produce, args=(clusters.here.bootstrap, topic))
    consuming = [
        threading.Thread(target=traffic.consume, args=(clusters.here.bootstrap, topic, group, stop), kwargs=settings)
        for _ in range(2)
    ]
    with Mirroring(clusters), threads(producing, *consuming):
        try:
            traffic.await_read(500)
            with psycopg.connect(clusters.url, autocommit=True) as connection:
                cut_over(connection, clusters.target, LINK, patience=Patience(near=5000), tell=said.append)
            at_flip = traffic.sent
            traffic.await_read(at_flip + 500)
        finally:
            traffic.is_over.set()
            producing.join(TIMEOUT_S)
            try:
                traffic.await_read(traffic.sent)
            finally:
                stop.set()
    assert not traffic.failed, traffic.failed[:3]
    assert not traffic.problems, (traffic.problems[:3], said)
    assert len(traffic.read) == traffic.sent
    assert max(traffic.read.values()) == 1, [value for value, times in traffic.read.items() if times > 1][:10]
    for values in traffic.per_key.values():
        assert values == sorted(values)
    ends = clusters.target.ends([(topic, number) for number in range(PARTITIONS)])
    assert sum(ends.values()) - (7 + 8 + 9) == traffic.sent, "some of them are not over there"
    assert any("all members have joined" in each for each in said), said


def write(servers: str, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, b"k", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def values_of(servers: str, topic: str, count: int) -> list[bytes]:
    """The first messages of a topic, as a reader of committed ones finds them."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": "values",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = [message.value() or b"" for message in reader.consume(count, TIMEOUT_S)]
    reader.close()
    assert len(found) == count
    return found


def group_offsets(servers: str, group: str) -> dict[tuple[str, int], int]:
    return target_of(servers).offsets(group)


def await_offset(clusters: Clusters, offset: int) -> None:
    """Until the gateway has heard that the group is its own again; until then it sends us to the other cluster."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := group_offsets(clusters.here.bootstrap, "billing").get(("orders", 0))) != offset:
        assert time.monotonic() < deadline, found


@pytest.fixture
def connection(clusters: Clusters) -> Iterator[psycopg.Connection]:
    with psycopg.connect(clusters.url, autocommit=True) as opened:
        yield opened


QUICK = Patience(catch_up_s=60, drain_s=60, transactions_s=0.5, groups_s=0.5, members_s=0.5)


def test_open_transactions_end_before_their_topics_leave(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")
    settings = {"bootstrap.servers": clusters.here.bootstrap, "log_level": 0}
    done, left_open = (Producer({**settings, "transactional.id": name}) for name in ("till-1", "till-2"))
    for producer in (done, left_open):
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    done.produce("orders", b"paid", b"k", partition=0)
    left_open.produce("orders", b"never", b"k", partition=0)
    assert left_open.flush(TIMEOUT_S) == 0
    done.commit_transaction(TIMEOUT_S)
    said: list[str] = []
    with Mirroring(clusters):
        cut_over(connection, clusters.target, LINK, ["orders"], patience=QUICK, tell=said.append)
    assert any("aborting 1 transactions" in each for each in said), said
    assert values_of(clusters.there.bootstrap, "orders", 1) == [b"paid"]
    states: dict[str, str] = dict(
        connection.execute("select transactional_id, state from kafka.transactions").fetchall()
    )
    assert states == {"till-1": "CompleteCommit", "till-2": "CompleteAbort"}


def test_a_mirror_that_stands_still_lifts_the_fence(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one")
    with pytest.raises(StateError, match="is not mirrored: 1 are left"):
        cut_over(connection, clusters.target, LINK, patience=Patience(drain_s=0.5))
    write(clusters.here.bootstrap, "orders", b"two")  # nobody is fenced
    assert connection.execute("select count(*) from kafka.moves").fetchone() == (0,)


def test_a_difference_lifts_the_fence(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one", b"two")
    with Mirroring(clusters):
        for _ in iter(lambda: sum(part.lag for part in progress(connection, LINK, ["orders"])), 0):
            pass
    write(clusters.there.bootstrap, "orders", b"somebody else")
    with pytest.raises(StateError, match="ends at 10 in the other cluster, and not at 9"):
        cut_over(connection, clusters.target, LINK, patience=QUICK)
    connection.execute("update kafka.shadow_partitions set ext_next = 10, records = 3 where partition = 0")
    with pytest.raises(StateError, match="what lies in orders/0 of the other cluster is not what was sent"):
        cut_over(connection, clusters.target, LINK, patience=QUICK)
    connection.execute("update kafka.shadow_runs set ext_base = 8, end_offset = 2 where partition = 0")
    with pytest.raises(StateError, match="message 0 of orders/0 is another one"):
        cut_over(connection, clusters.target, LINK, patience=replace(QUICK, hash=False))
    write(clusters.here.bootstrap, "orders", b"three")


def test_a_plan_names_everything_that_stands_against_it(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")
    for topic, count in (("beside", 1), ("narrow", 2)):
        admin = AdminClient({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, count, 1)])[topic].result(TIMEOUT_S)
    start_group(clusters, "orders", "billing")
    consumer = Consumer({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("beside", 0, 0)], asynchronous=False)
    consumer.close()
    connection.execute(
        "insert into kafka.brokers (node_id, host, port, instance, expires_at) overriding system value"
        " values (101, 'x', 1, gen_random_uuid(), now())"
    )
    connection.execute("update kafka.shadow_links set topic_prefix = 'pg.', percent = 10")
    plan = make_plan(connection, clusters.target, LINK, ["orders", "narrow", "missing"])
    told = "\n".join(plan.problems)
    for part in (
        "topic_prefix 'pg.'",
        "10 percent",
        "broker id 101 is another broker's here",
        "no topic missing here",
        "no topic narrow in the other cluster",
        "0 of 2 partitions of narrow are mirrored",
        "the group billing reads beside, too",
    ):
        assert part in told
    with pytest.raises(StateError, match="headgate shadow plan"):
        cut_over(connection, clusters.target, LINK, ["orders", "narrow"])
    assert connection.execute("select count(*) from kafka.moves").fetchone() == (0,)


_DIE = """
import os, sys, psycopg
from headgate.shadow.cluster import Cluster
from headgate.shadow.cutover import Patience, Target, cut_over
url, servers, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
said = []
def tell(text):
    said.append(text)
    if len(said) > steps:
        os._exit(137)
patience = Patience(catch_up_s=60, drain_s=60, groups_s=0.5, members_s=0.5)
with psycopg.connect(url, autocommit=True) as connection:
    target = Target(Cluster(servers=servers))
    cut_over(connection, target, "to-kafka", patience=patience, tell=tell)
"""


@pytest.mark.parametrize("steps", [0, 2, 4, 5])  # fenced, verified, closed, handed over
def test_a_second_run_goes_on_where_the_first_died(
    clusters: Clusters, connection: psycopg.Connection, steps: int
) -> None:
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one", b"two", b"three")
    start_group(clusters, "orders", "billing")
    consumer = Consumer({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    consumer.close()
    with Mirroring(clusters):
        command = [sys.executable, "-c", _DIE, clusters.url, clusters.there.bootstrap, str(steps)]
        died = subprocess.run(command, timeout=TIMEOUT_S, capture_output=True, text=True, check=False)
        assert died.returncode == 137, died.stderr
        cut_over(connection, clusters.target, LINK, patience=QUICK)
        cut_over(connection, clusters.target, LINK, patience=QUICK)  # once more changes nothing
    assert group_offsets(clusters.there.bootstrap, "billing") == {("orders", 0): 9, ("orders", 1): 8, ("orders", 2): 9}
    assert values_of(clusters.here.bootstrap, "orders", 3) == [b"one", b"two", b"three"]  # it is read over there
    write(clusters.here.bootstrap, "orders", b"four")
    assert values_of(clusters.there.bootstrap, "orders", 4)[-1] == b"four"


@pytest.mark.parametrize("steps", [1, 4])
def test_a_roll_back_before_the_flip_costs_nothing(
    clusters: Clusters, connection: psycopg.Connection, steps: int
) -> None:
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one")
    start_group(clusters, "orders", "billing")
    with Mirroring(clusters):
        command = [sys.executable, "-c", _DIE, clusters.url, clusters.there.bootstrap, str(steps)]
        subprocess.run(command, timeout=TIMEOUT_S, capture_output=True, check=False)
        assert roll_back(connection, clusters.target, LINK) == ["orders"]
    write(clusters.here.bootstrap, "orders", b"two")
    assert values_of(clusters.here.bootstrap, "orders", 2) == [b"one", b"two"]
    await_offset(clusters, 0)
    start_group(clusters, "orders", "billing")  # it can commit again


def test_a_roll_back_after_the_flip_loses_nothing_unless_told_to(
    clusters: Clusters, connection: psycopg.Connection
) -> None:
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one", b"two")
    start_group(clusters, "orders", "billing")
    with Mirroring(clusters):
        cut_over(connection, clusters.target, LINK, patience=QUICK)
    write(clusters.there.bootstrap, "orders", b"three")
    reader = Consumer({"bootstrap.servers": clusters.there.bootstrap, "log_level": 0, "group.id": "billing"})
    reader.commit(offsets=[TopicPartition("orders", 0, 8)], asynchronous=False)
    reader.close()
    with pytest.raises(StateError, match="1 messages of orders/0 were written to the other cluster"):
        roll_back(connection, clusters.target, LINK)
    roll_back(connection, clusters.target, LINK, discard=True)
    await_offset(clusters, 1)
    write(clusters.here.bootstrap, "orders", b"here again")
    assert values_of(clusters.here.bootstrap, "orders", 3) == [b"one", b"two", b"here again"]


def test_a_target_that_somebody_wrote_by_hand_stops_nobody_else(
    clusters: Clusters, connection: psycopg.Connection
) -> None:
    prepare(clusters, "orders")
    prepare_other = NewTopic("other", 1, 1)
    admin = AdminClient({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0})
    admin.create_topics([prepare_other])["other"].result(TIMEOUT_S)
    nonsense = Jsonb({"orders": {"brokers": "many"}})
    connection.execute("select kafka.move_topics(%s, array['orders'], 'moved', %s)", [LINK, nonsense])
    write(clusters.here.bootstrap, "other", b"fine")
    described = admin.list_topics("orders", TIMEOUT_S).topics["orders"]
    assert {part.error.name() for part in described.partitions.values() if part.error} == {"LEADER_NOT_AVAILABLE"}


def test_a_transaction_spans_no_two_clusters(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")
    producer = Producer({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0, "transactional.id": "till-1"})
    producer.init_transactions(TIMEOUT_S)
    with Mirroring(clusters):
        cut_over(connection, clusters.target, LINK, patience=QUICK)
    producer.begin_transaction()
    producer.produce("orders", b"never", b"k", partition=0)
    with pytest.raises(KafkaException, match="INVALID_"):
        producer.commit_transaction(TIMEOUT_S)
    assert clusters.target.ends([("orders", 0)]) == {("orders", 0): 7}


def test_what_was_written_over_there_comes_back(clusters: Clusters, connection: psycopg.Connection) -> None:
    """The whole way and back: every message once, and the group at its next one."""
    prepare(clusters, "orders")
    write(clusters.here.bootstrap, "orders", b"one", b"two")
    start_group(clusters, "orders", "billing")
    with Mirroring(clusters):
        cut_over(connection, clusters.target, LINK, patience=QUICK)
    write(clusters.there.bootstrap, "orders", b"three", b"four")
    reader = Consumer({"bootstrap.servers": clusters.there.bootstrap, "log_level": 0, "group.id": "billing"})
    reader.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)  # it has read three
    reader.close()
    back = WayBack(clusters.url, clusters.there.bootstrap, "orders")
    back.to_the_end()
    roll_back(connection, clusters.target, LINK)
    await_offset(clusters, 3)
    write(clusters.here.bootstrap, "orders", b"five")
    assert values_of(clusters.here.bootstrap, "orders", 5) == [b"one", b"two", b"three", b"four", b"five"]


def test_two_clusters_with_the_same_broker_ids_are_told_apart(
    clusters: Clusters, connection: psycopg.Connection
) -> None:
    prepare(clusters, "orders")
    admin = AdminClient({"bootstrap.servers": clusters.here.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("elsewhere", 1, 1)])["elsewhere"].result(TIMEOUT_S)
    (node,) = (broker["node_id"] for broker in clusters.target.cluster()["brokers"])
    brokers = [{"node_id": node}, {"node_id": "none"}]  # somebody has written to it by hand
    target = Jsonb({"elsewhere": {"cluster_id": "another", "brokers": brokers}})
    connection.execute("select kafka.move_topics('to-another', array['elsewhere'], 'moved', %s)", [target])
    assert any(f"broker id {node} is" in each for each in make_plan(connection, clusters.target, LINK).problems)


def test_a_second_one_does_not_lift_the_fence_of_the_first(clusters: Clusters, connection: psycopg.Connection) -> None:
    prepare(clusters, "orders")

    def begin_another(said: str) -> None:
        if said.startswith("producers of"):
            with psycopg.connect(clusters.url, autocommit=True) as other:
                for call in (
                    lambda: cut_over(other, clusters.target, LINK),
                    lambda: roll_back(other, clusters.target, LINK),
                ):
                    with pytest.raises(OccupiedError):
                        call()
        if said.startswith("the rolling hashes"):  # and should somebody do it by hand
            connection.execute("select kafka.move_topics(%s, array['orders'], null)", [LINK])

    with Mirroring(clusters), pytest.raises(StateError, match="the fence was lifted"):
        cut_over(connection, clusters.target, LINK, patience=QUICK, tell=begin_another)
    write(clusters.here.bootstrap, "orders", b"here")
