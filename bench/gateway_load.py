"""Clients that load a gateway, each in a process of its own, and the same bytes written without one."""

from __future__ import annotations

import multiprocessing as mp
import time
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

import numpy as np
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.wire.kafka import Record, encode_batch

__all__ = [
    "OutboxRates",
    "Rates",
    "consume",
    "latencies_ms",
    "outbox_of",
    "produce",
    "raw_batches",
    "rows_of_the_seed",
    "transact",
]

_CONTEXT = mp.get_context("spawn")
_PARTITIONS = 4
_GROUP = 64  # batches in one transaction


class Rates(NamedTuple):
    """How fast messages went, and their bytes."""

    messages: float
    megabytes: float


def produce(servers: str, topic: str, *, producers: int, messages: int, size: int) -> Rates:
    """Every producer waits for all acknowledgements; the time runs from the first message to the last of them."""
    barrier = _CONTEXT.Barrier(producers)
    share = messages // producers
    with _CONTEXT.Pool(producers, _set_barrier, (barrier,)) as pool:
        spans = pool.starmap(_produce_share, [(servers, topic, share, size)] * producers)
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return Rates(share * producers / seconds, share * producers * size / seconds / 1e6)


_barrier: Barrier


def _set_barrier(barrier: Barrier) -> None:
    global _barrier  # the only way into a process of a pool
    _barrier = barrier


def _produce_share(servers: str, topic: str, messages: int, size: int) -> tuple[float, float]:
    settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    producer = Producer(settings)
    value = np.random.default_rng(1).bytes(size)
    producer.list_topics(topic, timeout=30)
    _barrier.wait()
    begin = time.time()
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, value, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 10_000:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} messages were not acknowledged")
    return begin, time.time()


def transact(servers: str, topic: str, *, messages: int, size: int, per_transaction: int) -> Rates:
    """One producer, whose transactions follow one another; the time runs to the end of the last."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 5, "transactional.id": f"{topic}-{per_transaction}"}
    )
    value = np.random.default_rng(1).bytes(size)
    producer.init_transactions(30)
    begin = time.time()
    for first in range(0, messages, per_transaction):
        producer.begin_transaction()
        for number in range(first, min(first + per_transaction, messages)):
            producer.produce(topic, value, partition=number % _PARTITIONS)
        producer.commit_transaction(60)
    seconds = time.time() - begin
    return Rates(messages / seconds, messages * size / seconds / 1e6)


def consume(servers: str, topic: str, messages: int) -> Rates:
    """One consumer, from the first message on."""
    with _CONTEXT.Pool(1) as pool:
        seconds, size = pool.apply(_consume, (servers, topic, messages))
    return Rates(messages / seconds, size / seconds / 1e6)


def _consume(servers: str, topic: str, messages: int) -> tuple[float, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.list_topics(topic, timeout=30)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(_PARTITIONS)])
    begin = time.perf_counter()
    count = size = 0
    while count < messages:
        for message in consumer.consume(10_000, 10):
            if message.error():
                raise RuntimeError(str(message.error()))
            size += len(message.value() or b"")
            count += 1
    seconds = time.perf_counter() - begin
    consumer.close()
    return seconds, size


def latencies_ms(servers: str, topic: str, messages: int, per_second: int) -> list[float]:
    """From `produce` to `poll`, one message after the other at a steady rate."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency", "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[float] = []
    begin = time.perf_counter()
    for number in range(messages):
        time.sleep(max(0.0, begin + number / per_second - time.perf_counter()))  # the pace is what is measured at
        producer.produce(topic, str(time.perf_counter_ns()), partition=0)
        producer.poll(0)
        message = consumer.poll(10)
        if message is None or message.error():
            raise RuntimeError("no message came")
        found.append((time.perf_counter_ns() - int(message.value() or b"0")) / 1e6)
    consumer.close()
    return found


def raw_batches(url: str, *, per_batch: int, size: int, messages: int) -> Rates:
    """The limit: the same batches as plain rows, `_GROUP` of them in one transaction, and nothing else."""
    value = np.random.default_rng(1).bytes(size)
    batch = encode_batch([Record(number, 1, None, value) for number in range(per_batch)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bench_batches")
        connection.execute(
            "CREATE TABLE bench_batches (part_id int, last_offset bigint, base_offset bigint, data bytea,"
            " PRIMARY KEY (part_id, last_offset))"
        )
        connection.execute("ALTER TABLE bench_batches ALTER data SET STORAGE EXTERNAL")
        insert = "INSERT INTO bench_batches SELECT * FROM unnest(%b::int[], %b::bigint[], %b::bigint[], %b::bytea[])"
        done, begin = 0, time.perf_counter()
        while done < messages:
            bases = [done + number * per_batch for number in range(_GROUP)]
            lasts = [base + per_batch - 1 for base in bases]
            connection.execute(insert, ([0] * _GROUP, lasts, bases, [batch] * _GROUP))
            done += per_batch * _GROUP
        seconds = time.perf_counter() - begin
        connection.execute("DROP TABLE bench_batches")
    return Rates(done / seconds, done * size / seconds / 1e6)


class OutboxRates(NamedTuple):
    """Messages a second into the inbox, and from its commit until the last of them is in the log."""

    into: float
    out: float


def outbox_of(url: str, topic: str, messages: int) -> dict[str, OutboxRates]:
    """By calls of one connection that waits for none of them, by a query that calls, and by arrays of a thousand."""
    ways = {"calls": _calls, "query": _query, "arrays": _arrays}
    found = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for name, write in ways.items():
            begin = time.perf_counter()
            with connection.transaction():
                write(connection, topic, messages)
            written = time.perf_counter()
            _await_empty(connection)
            found[name] = OutboxRates(messages / (written - begin), messages / (time.perf_counter() - written))
    return found


_VALUE = "v" * 100


def _calls(connection: psycopg.Connection, topic: str, messages: int) -> None:
    with connection.pipeline():
        for number in range(messages):
            connection.execute("SELECT kafka.produce(%s, %s, %s)", (topic, str(number), _VALUE))


def _query(connection: psycopg.Connection, topic: str, messages: int) -> None:
    query = "SELECT count(kafka.produce(%s, n::text, %s)) FROM generate_series(1, %s::int) AS n"
    connection.execute(query, (topic, _VALUE, messages))


def _arrays(connection: psycopg.Connection, topic: str, messages: int) -> None:
    keys, values = [str(number) for number in range(1000)], [_VALUE] * 1000
    for _ in range(messages // 1000):
        connection.execute("SELECT kafka.produce_many(%s, %s::text[], %s::text[])", (topic, keys, values))


def _await_empty(connection: psycopg.Connection) -> None:
    while True:
        row = connection.execute("SELECT EXISTS (SELECT FROM kafka.inbox)").fetchone()
        if row == (False,):
            return
        time.sleep(0.005)  # nothing tells


_SEED = """
CREATE SCHEMA seed;
CREATE TABLE seed.topics (id serial PRIMARY KEY, name text UNIQUE NOT NULL, partitions int DEFAULT 1);
CREATE TABLE seed.messages (
    topic_id int NOT NULL, partition_id int NOT NULL, global_offset bigserial, partition_offset bigint NOT NULL,
    key bytea, value bytea, headers jsonb, created_at timestamp NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, partition_id, partition_offset),
    FOREIGN KEY (topic_id) REFERENCES seed.topics (id) ON DELETE CASCADE,
    UNIQUE (global_offset));
INSERT INTO seed.topics (name) VALUES ('t');
"""


def rows_of_the_seed(url: str, *, per_batch: int, size: int, messages: int) -> Rates:
    """A row for every message, as the first design of such gateways had it, one transaction for every batch."""
    value = np.random.default_rng(1).bytes(size)
    insert = (
        "INSERT INTO seed.messages (topic_id, partition_id, partition_offset, value)"
        " SELECT 1, 0, * FROM unnest(%b::bigint[], %b::bytea[])"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS seed CASCADE")
        connection.execute(_SEED)
        done, begin = 0, time.perf_counter()
        while done < messages:
            connection.execute(insert, (list(range(done, done + per_batch)), [value] * per_batch))
            done += per_batch
        seconds = time.perf_counter() - begin
        connection.execute("DROP SCHEMA seed CASCADE")
    return Rates(done / seconds, done * size / seconds / 1e6)
