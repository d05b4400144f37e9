"""A mirror to a real Apache Kafka, as a pipeline on Spark: beside a consumer and a producer that do it by hand.

Both read the same messages from the same gateway's log and write them to the same Kafka, one after the other. CPU is
that of whoever moves the messages: the mirror's Spark with its workers, or the one process of confluent-kafka's
clients. The servers' is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from bench.apache_kafka import classes, running_kafka
from bench.gateway_load import produce
from bench.harness import Bench
from conformance.gateways import gateway
from headgate.config import Config
from headgate.embedded import Stack, find_java
from headgate.model import Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.session import SparkOptions, open_session
from headgate.pipeline.supervisor import Supervisor

_PARTITIONS = 4
_TIMEOUT_S = 600.0


def measure(bench: Bench) -> None:
    """Mirror messages of 100 bytes and of 1 KiB, a backlog each."""
    java = classes()
    if java is None:
        raise SystemExit("Apache Kafka's jars cannot be had: install maven, and let it reach its registry")
    messages = 200_000 if bench.quick else 2_000_000
    with Stack(bench.directory / "stack", nats=False) as stack:
        url = stack.postgres_url
        assert url is not None
        with (
            gateway(bench.directory / "gateway", postgres_url=url) as here,
            running_kafka(java, bench.directory / "kafka", every_batch_to_disk=False) as there,
        ):
            spark = open_session(
                SparkOptions(java_home=find_java(bench.directory / "java").home, log_dir=bench.directory / "logs")
            )
            try:
                _warm_up(bench, spark, url, here, there)
                for size, count in ((100, messages), (1024, messages // 4)):
                    _one_size(bench, spark, url, here, there, size, count)
            finally:
                spark.stop()


def _warm_up(bench: Bench, spark: SparkSession, url: str, here: str, there: str) -> None:
    """What every first run pays: classes, workers, plans."""
    _fill(here, "warm", 1000, 100)
    _mirror(bench.directory / "warm", spark, url, there, "warm")


def _one_size(bench: Bench, spark: SparkSession, url: str, here: str, there: str, size: int, count: int) -> None:
    topic = f"t{size}"
    _fill(here, topic, count, size)
    _create(there, f"byhand-{topic}")
    figures: dict[str, tuple[float, float]] = {}
    with _measured() as spent:
        _by_hand(here, there, topic, f"byhand-{topic}", count)
    figures["by_hand"] = spent[0], spent[1]
    with _measured() as spent:
        _mirror(bench.directory / topic, spark, url, there, topic)
    figures["mirror"] = spent[0], spent[1]
    for name, (seconds, cpu) in figures.items():
        bench.figure(f"{name}_{size}b_msg_s", count / seconds)
        bench.figure(f"{name}_{size}b_mb_s", count * size / seconds / 1e6)
        bench.figure(f"{name}_{size}b_cpu_us_per_msg", cpu / count * 1e6)
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select sum(n)::float8 / count(*) from kafka.batches where size > %s", [size]
        ).fetchone()
        lag = connection.execute("select sum(records) from kafka.shadow_lag where topic = %s", [topic]).fetchone()
    assert row is not None
    assert lag == (0,), lag
    bench.figure(f"messages_per_batch_{size}b", row[0])
    ratio = bench.figures[f"mirror_{size}b_msg_s"] / bench.figures[f"by_hand_{size}b_msg_s"]
    bench.check(f"mirror beside consume and produce, {size} B", ratio, 1.0, "higher")
    less = bench.figures[f"mirror_{size}b_cpu_us_per_msg"] / bench.figures[f"by_hand_{size}b_cpu_us_per_msg"]
    bench.check(f"CPU of the mirror beside consume and produce, {size} B", less, 1.0, "lower")


def _fill(here: str, topic: str, messages: int, size: int) -> None:
    _create(here, topic)
    produce(here, topic, producers=1, messages=messages, size=size)


def _create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, _PARTITIONS, 1)]).values():
        made.result(30)


@contextmanager
def _measured() -> Iterator[list[float]]:
    """Seconds, and seconds of CPU of this process and of Spark's."""
    spent: list[float] = []
    cpu, began = _cpu_s(), time.perf_counter()
    yield spent
    spent += time.perf_counter() - began, _cpu_s() - cpu


def _cpu_s() -> float:
    movers = [psutil.Process()]
    for child in psutil.Process().children():
        if "spark" in " ".join(child.cmdline()).lower() and "kafka.Kafka" not in child.cmdline():
            movers += [child, *child.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in movers)


def _by_hand(here: str, there: str, source: str, target: str, count: int) -> None:
    """Read and write message by message, to the same partitions, with keys, headers and times."""
    consumer = Consumer({"bootstrap.servers": here, "group.id": "by-hand", "enable.auto.commit": False})
    settings = {"bootstrap.servers": there, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer(settings | {"queue.buffering.max.messages": 500_000})
    consumer.assign([TopicPartition(source, each, 0) for each in range(_PARTITIONS)])
    moved = 0
    while moved < count:
        for message in consumer.consume(10_000, 5.0):
            assert message.error() is None, message.error()
            _pass_on(producer, target, message)
            moved += 1
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer.close()


def _pass_on(producer: Producer, topic: str, message: Any) -> None:
    while True:
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                message.partition(),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _mirror(directory: Path, spark: SparkSession, url: str, there: str, topic: str) -> None:
    config = Config.model_validate(
        {
            "project": {"name": "bench", "data_dir": directory},
            "sources": {"log": {"type": "log", "topics": [topic], "unit": "batches"}},
            "destinations": {"mirror": {"type": "shadow", "servers": there}},
            "pipelines": {"shadow": {"source": "log", "destinations": ["mirror"]}},
        }
    )
    supervisor = Supervisor(assemble(config, nats_url=None, postgres_url=url, until_caught_up=True)[0], spark)
    supervisor.start()
    assert supervisor.join(_TIMEOUT_S)
    assert supervisor.report.status is Status.STOPPED, supervisor.report.error
