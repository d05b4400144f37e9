"""The gateway under a steady load for minutes: does what retention gives back keep the database at one size?"""

from __future__ import annotations

import multiprocessing as mp
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import NamedTuple

import numpy as np
import psutil
import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.harness import Bench
from conformance.gateways import gateway
from headgate.embedded import Stack

_CONTEXT = mp.get_context("spawn")
_TOPIC, _PARTITIONS = "soak", 4
_MESSAGES_A_SECOND, _MESSAGE_BYTES = 5_000, 200
_TICK_S = 0.05
_SAMPLE_S = 1.0
_SIZES = """
select sum(pg_total_relation_size(oid))::bigint, count(*) filter (where relname like 'segment\\_%')
from pg_class where relnamespace = 'kafka'::regnamespace and relkind = 'r'
"""
_DEAD = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables where schemaname = 'kafka'"
# Tables that come and go leave their traces there.
_CATALOG = """
select sum(pg_total_relation_size(oid))::bigint from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'
"""


class _Sample(NamedTuple):
    kafka_mb: float
    segments: float
    dead_tuples: float
    catalog_mb: float
    rss_mb: float


def measure(bench: Bench) -> None:
    seconds, retention_s = (60, 8) if bench.quick else (600, 60)
    with Stack(bench.directory / "stack") as stack:
        url = stack.postgres_url
        assert url is not None
        with gateway(bench.directory / "gateway", postgres_url=url) as servers:
            _create(servers, retention_s)
            with _load(servers) as counts:
                began = time.monotonic()
                samples = _samples(url, seconds)
                elapsed_s = time.monotonic() - began
    bench.figure("seconds", elapsed_s)
    bench.figure("retention_seconds", retention_s)
    bench.figure("messages_written", counts[0].value)
    bench.figure("messages_read", counts[1].value)
    bench.figure("message_bytes", _MESSAGE_BYTES)
    _tell(bench, samples)


def _create(servers: str, retention_s: int) -> None:
    topic = NewTopic(_TOPIC, _PARTITIONS, config={"retention.ms": str(retention_s * 1000)})
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([topic])[_TOPIC].result(30)


@contextmanager
def _load(servers: str) -> Iterator[tuple[Synchronized[int], Synchronized[int]]]:
    """One that writes at a steady rate, and a group of one that follows it and commits. Gives what both have done."""
    counts = _CONTEXT.Value("q", 0), _CONTEXT.Value("q", 0)
    stop = _CONTEXT.Event()
    processes = [
        _CONTEXT.Process(target=run, args=(servers, count, stop))
        for run, count in zip((_write, _read), counts, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        yield counts
    finally:
        stop.set()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a client of the gateway failed")


def _write(servers: str, count: Synchronized[int], stop: Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    value = np.random.default_rng(1).bytes(_MESSAGE_BYTES)

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        count.value += 1

    next_tick = time.monotonic()
    while not stop.wait(max(0.0, next_tick - time.monotonic())):
        next_tick += _TICK_S
        for number in range(int(_MESSAGES_A_SECOND * _TICK_S)):
            producer.produce(_TOPIC, value, key=str(number), on_delivery=acknowledged)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("some messages were not acknowledged")


def _read(servers: str, count: Synchronized[int], stop: Event) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "soak", "auto.offset.reset": "earliest"})
    consumer.subscribe([_TOPIC])
    while not stop.is_set():
        for message in consumer.consume(10_000, 0.2):
            if error := message.error():
                raise RuntimeError(str(error))
            count.value += 1
    consumer.close()


def _samples(url: str, seconds: float) -> list[_Sample]:
    process = next(
        each for each in psutil.Process().children() if "gateway" in each.cmdline() and "headgate" in each.cmdline()
    )
    found = []
    end = time.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < end:
            time.sleep(_SAMPLE_S)  # the pace of the measurement
            kafka, segments, dead, catalog = (
                value for query in (_SIZES, _DEAD, _CATALOG) for value in connection.execute(query).fetchall()[0]
            )
            rss = process.memory_info().rss
            found.append(_Sample(kafka / 1e6, segments, dead, catalog / 1e6, rss / 1e6))
    return found


def _tell(bench: Bench, samples: list[_Sample]) -> None:
    """The first third is for warming up: nothing has expired when it begins."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for name in _Sample._fields:
        for label, part in (("middle", middle), ("last", last)):
            bench.figure(f"{name}_{label}_third", statistics.fmean(getattr(each, name) for each in part))
        bench.figure(f"{name}_most", max(getattr(each, name) for each in samples))
    ratio = bench.figures["kafka_mb_last_third"] / bench.figures["kafka_mb_middle_third"]
    bench.check("size in the last third / in the middle third", ratio, 1.2, "lower")
