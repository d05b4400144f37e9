"""A real Apache Kafka for tests, from Maven's central registry: one node in KRaft mode, small, killed when wanted.

with ApacheKafka(directory) as kafka:
    Producer({"bootstrap.servers": kafka.servers})
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from conformance.gateways import free_port
from conformance.maven import jars

__all__ = ["ApacheKafka", "kafka_classes"]

VERSION = "4.3.1"
NODE_ID = 101
_WORK = Path(".headgate") / "conformance" / "kafka"
_CLUSTERS = iter(f"headgateTest{number:04}Kafka" + "w" for number in range(1, 10_000))  # 16 bytes in base64: 22 letters
_START_S, _STOP_S = 120.0, 60.0
_JAVA = ("java", "-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "broker.session.timeout.ms": "1000",  # one that was killed may come back as soon
    "broker.heartbeat.interval.ms": "200",
    "num.network.threads": "2",
    "num.io.threads": "2",
}


def kafka_classes() -> Path:
    """Where Kafka's jars are; the test is skipped where they cannot be had."""
    try:
        return jars(
            _WORK.resolve(),
            f"org.apache.kafka:kafka_2.13:{VERSION}",
            f"org.apache.kafka:kafka-tools:{VERSION}",
            "org.slf4j:slf4j-nop:1.7.36",
        )
    except (SystemExit, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no Apache Kafka here: {error}")


class ApacheKafka:
    """A broker that is its own controller. `more` are settings; `listener` is what clients speak."""

    def __init__(
        self, directory: Path, *, listener: str = "PLAINTEXT", more: Mapping[str, str] | None = None, users: str = ""
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._classes, self._directory = kafka_classes(), directory
        self._port, self._inner, controller = free_port(), free_port(), free_port()
        self.servers = f"127.0.0.1:{self._port}"
        self.inner = f"127.0.0.1:{self._inner}"  # without login and encryption, for the tests themselves
        settings = _SETTINGS | {
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "listeners": f"CLIENTS://{self.servers},INNER://{self.inner},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENTS://{self.servers},INNER://{self.inner}",
            "listener.security.protocol.map": f"CLIENTS:{listener},INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "log.dirs": str(directory / "logs"),
            **(more or {}),
        }
        self._settings = directory / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        format_logs = ["kafka.tools.StorageTool", "format", "-t", next(_CLUSTERS), "-c", str(self._settings)]
        subprocess.run([*self._java(), *format_logs, *users.split()], capture_output=True, timeout=_START_S, check=True)

    def _java(self) -> list[str]:
        return [*_JAVA, "-cp", f"{self._classes}/*"]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
        with (self._directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._settings)], stdout=log, stderr=log, env=environment
            )
        admin = AdminClient({"bootstrap.servers": self.inner, "log_level": 0})
        deadline = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue
        raise RuntimeError(f"Apache Kafka did not start (exit code {self._process.poll()})")

    def kill(self) -> None:
        """End it as a power cut would, but for what the system's cache holds."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_STOP_S)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()  # nobody needs what is in it any more
