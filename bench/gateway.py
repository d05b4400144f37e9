"""The Kafka gateway: produce, consume and latency through stock clients, beside the same bytes written directly.

And the outbox, from SQL into the log. Without `--quick`, and where one can be had, an Apache Kafka on the same machine.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import psutil
import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.apache_kafka import classes, java_consume, java_produce, running_kafka
from bench.gateway_load import consume, latencies_ms, outbox_of, produce, raw_batches, rows_of_the_seed, transact
from bench.harness import Bench
from conformance.gateways import gateway
from headgate.embedded import Stack

_PARTITIONS = 4
_IDLE_S = 5.0
_OUTBOX_GOAL = 30_000


def measure(bench: Bench) -> None:
    messages = 200_000 if bench.quick else 1_000_000
    with Stack(bench.directory / "stack") as stack:
        url = stack.postgres_url
        assert url is not None
        with gateway(bench.directory / "gateway", postgres_url=url) as servers:
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            _throughput(bench, admin, servers, messages)
            _transactions(bench, admin, servers, messages)
            _limits(bench, url, messages)
            _latency(bench, admin, servers)
            _idle(bench)
            _sql(bench, url)
            _outbox(bench, admin, url, messages // 5)
            java = None if bench.quick else classes()
            if java is not None:
                _java(bench, java, admin, servers, messages, "")
    _goals(bench)
    if java is not None:
        _beside(bench, java, messages)


def _outbox(bench: Bench, admin: AdminClient, url: str, messages: int) -> None:
    """Into the inbox and out of it again, each measured alone."""
    _create(admin, "outbox")
    for name, rates in outbox_of(url, "outbox", messages).items():
        bench.figure(f"outbox_{name}_msg_s", rates.into)
        bench.figure(f"outbox_{name}_drained_msg_s", rates.out)
        bench.check(f"outbox, {name}: in, msg/s", rates.into, _OUTBOX_GOAL, "higher")
        bench.check(f"outbox, {name}: out, msg/s", rates.out, _OUTBOX_GOAL, "higher")


def _java(bench: Bench, java: Path, admin: AdminClient, servers: str, messages: int, prefix: str) -> None:
    _create(admin, "java")
    bench.figure(f"{prefix}java_produce_msg_s", java_produce(java, servers, "java", messages, 100))
    bench.figure(f"{prefix}java_consume_msg_s", java_consume(java, servers, "java", messages))


def _beside(bench: Bench, java: Path, messages: int) -> None:
    """What Apache Kafka does with the same load, as it comes, and with an fsync for every batch."""
    for prefix, every_batch_to_disk in (("kafka_", False), ("kafka_fsync_", True)):
        with running_kafka(java, bench.directory / prefix, every_batch_to_disk=every_batch_to_disk) as servers:
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            for producers in (1, 8):
                topic = f"t{producers}"
                _create(admin, topic)
                rates = produce(servers, topic, producers=producers, messages=messages, size=100)
                bench.figure(f"{prefix}produce_100b_{producers}_producers_msg_s", rates.messages)
            bench.figure(f"{prefix}consume_100b_msg_s", consume(servers, "t1", messages).messages)
            _java(bench, java, admin, servers, messages, prefix)
    names = ("produce_100b_1_producers", "produce_100b_8_producers", "consume_100b", "java_produce", "java_consume")
    for name in names:
        ratio = bench.figures[f"{name}_msg_s"] / bench.figures[f"kafka_fsync_{name}_msg_s"]
        bench.check(f"beside Kafka with fsync: {name}", ratio, 1.0, "higher")


def _throughput(bench: Bench, admin: AdminClient, servers: str, messages: int) -> None:
    for size, count in ((100, messages), (1024, messages // 4)):
        for producers in (1, 8):
            topic = f"t{size}-{producers}"
            _create(admin, topic)
            rates = produce(servers, topic, producers=producers, messages=count, size=size)
            bench.figure(f"produce_{size}b_{producers}_producers_msg_s", rates.messages)
            bench.figure(f"produce_{size}b_{producers}_producers_mb_s", rates.megabytes)
        got = consume(servers, f"t{size}-1", count)
        bench.figure(f"consume_{size}b_msg_s", got.messages)
        bench.figure(f"consume_{size}b_mb_s", got.megabytes)


def _transactions(bench: Bench, admin: AdminClient, servers: str, messages: int) -> None:
    """Beside what one producer writes without them."""
    for per_transaction, count in ((10_000, messages), (100, messages // 50)):
        topic = f"transactions-{per_transaction}"
        _create(admin, topic)
        rates = transact(servers, topic, messages=count, size=100, per_transaction=per_transaction)
        bench.figure(f"transactions_of_{per_transaction}_100b_msg_s", rates.messages)
        plain = bench.figures["produce_100b_1_producers_msg_s"]
        bench.figure(f"transactions_of_{per_transaction}_beside_plain", rates.messages / plain)


def _limits(bench: Bench, url: str, messages: int) -> None:
    """With as many messages in a batch as the clients' batches had."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT avg(n)::int, count(*) FROM kafka.batches WHERE size > n * 100").fetchone()
    assert found is not None
    bench.figure("messages_per_batch", found[0])
    bench.figure("raw_batches_msg_s", raw_batches(url, per_batch=found[0], size=100, messages=messages).messages)
    bench.figure("rows_of_seed_msg_s", rows_of_the_seed(url, per_batch=100, size=100, messages=messages // 10).messages)


def _latency(bench: Bench, admin: AdminClient, servers: str) -> None:
    _create(admin, "latency")
    found = sorted(latencies_ms(servers, "latency", 500 if bench.quick else 2000, per_second=200))
    bench.figure("latency_p50_ms", statistics.median(found))
    bench.figure("latency_p99_ms", found[len(found) * 99 // 100])


def _idle(bench: Bench) -> None:
    """What the gateway's process takes while nobody asks anything."""
    process = next(
        each for each in psutil.Process().children() if "gateway" in each.cmdline() and "headgate" in each.cmdline()
    )
    before = sum(process.cpu_times()[:2])
    time.sleep(_IDLE_S)
    bench.figure("idle_cpu_percent", (sum(process.cpu_times()[:2]) - before) / _IDLE_S * 100)
    bench.figure("rss_mb", process.memory_info().rss / 1e6)


def _sql(bench: Bench, url: str) -> None:
    with psycopg.connect(url) as connection:
        begin = time.perf_counter()
        row = connection.execute("SELECT count(*) FROM kafka.messages WHERE topic = 't100-1'").fetchone()
        assert row is not None
        bench.figure("sql_count_msg_s", row[0] / (time.perf_counter() - begin))


def _goals(bench: Bench) -> None:
    figures = bench.figures
    best = max(figures["produce_100b_1_producers_msg_s"], figures["produce_100b_8_producers_msg_s"])
    bench.check("produce 100 B, msg/s", best, 150_000, "higher")
    bench.check("produce beside raw inserts", best / figures["raw_batches_msg_s"], 0.5, "higher")
    bench.check("consume 100 B, msg/s", figures["consume_100b_msg_s"], 150_000, "higher")
    bench.check("latency p50, ms", figures["latency_p50_ms"], 10, "lower")
    bench.check("produce beside rows of the seed", best / figures["rows_of_seed_msg_s"], 1, "higher")
    bench.check("idle CPU, %", figures["idle_cpu_percent"], 2, "lower")


def _create(admin: AdminClient, topic: str) -> None:
    for made in admin.create_topics([NewTopic(topic, _PARTITIONS)]).values():
        made.result(30)
