"""A real Apache Kafka beside the gateway, from Maven's central registry, and Java's own clients."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from conformance.gateways import free_port
from conformance.maven import jars

__all__ = ["classes", "java_consume", "java_produce", "running_kafka"]

VERSION = "4.3.1"
_WORK = Path(".headgate") / "conformance" / "kafka"
_CLUSTER = "headgateBenchmarkKafka"  # 16 bytes in base64
_HEAP = ("-Xms512m", "-Xmx512m")
_START_S, _STOP_S, _TOOL_S = 120.0, 60.0, 300.0
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
{flush}
"""


def classes() -> Path | None:
    """Where its jars are; None if they cannot be had here."""
    try:
        return jars(
            _WORK.resolve(),
            f"org.apache.kafka:kafka_2.13:{VERSION}",
            f"org.apache.kafka:kafka-tools:{VERSION}",
            "org.slf4j:slf4j-nop:1.7.36",
        )
    except (SystemExit, subprocess.TimeoutExpired):
        return None


@contextmanager
def running_kafka(found: Path, directory: Path, *, every_batch_to_disk: bool) -> Iterator[str]:
    """A broker that is its own controller; gives its address. As it comes, or with an fsync for every batch."""
    directory.mkdir(parents=True)
    port, settings = free_port(), directory / "server.properties"
    flush = "log.flush.interval.messages=1" if every_batch_to_disk else ""
    settings.write_text(
        _SETTINGS.format(port=port, controller=free_port(), logs=directory / "logs", flush=flush), encoding="utf-8"
    )
    java = ["java", *_HEAP, "-cp", f"{found}/*"]
    format_logs = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
    subprocess.run(format_logs, capture_output=True, timeout=_START_S, check=True)
    with (directory / "kafka.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            _wait_for(f"127.0.0.1:{port}", process)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(servers: str, process: subprocess.Popen[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return
    raise RuntimeError(f"Apache Kafka did not start (exit code {process.poll()})")


def java_produce(found: Path, servers: str, topic: str, messages: int, size: int) -> float:
    """Messages a second of Java's producer with its defaults: batches of 16 kB."""
    said = _tool(
        found,
        *("ProducerPerformance", "--topic", topic, "--num-records", str(messages), "--record-size", str(size)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={servers}", "acks=all"),
    )
    rates = re.findall(r"([\d.]+) records/sec", said)
    if f"{messages} records sent" not in said or not rates:
        raise RuntimeError(f"ProducerPerformance failed: {said[-500:]}")
    return float(rates[-1])


def java_consume(found: Path, servers: str, topic: str, messages: int) -> float:
    """Messages a second of Java's consumer, while it fetches."""
    said = _tool(
        found, "ConsumerPerformance", "--bootstrap-server", servers, "--topic", topic, "--messages", str(messages)
    )
    names, *rows = [re.split(r",\s*", line) for line in said.splitlines() if line.count(",") >= 9]
    return float(rows[-1][names.index("fetch.nMsg.sec")])


def _tool(found: Path, name: str, *arguments: str) -> str:
    command = ["java", "-cp", f"{found}/*", f"org.apache.kafka.tools.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    return done.stdout + done.stderr
