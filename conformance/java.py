"""Apache Kafka's own tools, in Java, against the gateway: what administrators type, and its verifiable clients."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from conformance.gateways import gateway
from conformance.maven import jars

_VERSION = "4.1.0"
_TOOLS = "org.apache.kafka.tools."
_TIMEOUT_S = 90
_MESSAGES = 2000

Run = Callable[..., str]
Check = tuple[str, bool]


def run(work: Path) -> int:
    """Returns the exit code."""
    artifacts = (f"org.apache.kafka:{each}:{_VERSION}" for each in ("kafka-tools", "kafka_2.13"))
    classes = jars(work / "java-admin", *artifacts, "org.slf4j:slf4j-nop:1.7.36")
    failed = 0
    with gateway(work / "gateway-java", default_partitions=3) as servers:

        def tool(name: str, *arguments: str) -> str:
            full = name if name.startswith("kafka.") else _TOOLS + name
            command = ["java", "-cp", f"{classes}/*", full, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            return done.stdout + done.stderr + f"\nexit code {done.returncode}"

        for name, passed in _checks(tool, servers):
            sys.stdout.write(f"{name:60} {'passed' if passed else 'FAILED'}\n")
            sys.stdout.flush()
            failed += not passed
    return 1 if failed else 0


def _checks(tool: Run, servers: str) -> Iterator[Check]:
    at = ("--bootstrap-server", servers)
    yield from _topics(tool, at)
    sent = _events(tool("VerifiableProducer", *at, "--topic", "t", "--max-messages", str(_MESSAGES)))
    yield "VerifiableProducer: all acknowledged", sent.get("tool_data", [{}])[-1].get("acked") == _MESSAGES
    speed = tool(
        *("ProducerPerformance", "--topic", "t", "--num-records", "50000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={servers}", "acks=all"),
    )
    yield "ProducerPerformance", "50000 records sent" in speed
    for protocol in ("classic", "consumer"):
        yield f"VerifiableConsumer, group protocol {protocol}", _consumes(tool, at, protocol)
    speed = tool("ConsumerPerformance", *at, "--topic", "t", "--messages", "50000")
    yield "ConsumerPerformance", "exit code 0" in speed
    yield from _groups(tool, at)
    yield from _transactions(tool, at)
    yield from _users(tool, at)
    ends = tool("GetOffsetShell", *at, "--topic", "t")
    total = sum(int(end) for end in re.findall(r"^t:\d+:(\d+)$", ends, re.MULTILINE))
    yield "GetOffsetShell: every message is there", total == _MESSAGES + 50_000
    yield "LogDirsCommand", '"partition":"t-0"' in tool("LogDirsCommand", *at, "--describe")
    yield "EndToEndLatency", "Percentiles" in tool("EndToEndLatency", servers, "t", "200", "all", "100")
    yield "TopicCommand --delete", "exit code 0" in tool("TopicCommand", *at, "--delete", "--topic", "t")


def _topics(tool: Run, at: tuple[str, str]) -> Iterator[Check]:
    create = ("TopicCommand", *at, "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "3")
    yield "TopicCommand --create", "Created topic t" in tool(*create)
    yield "TopicCommand --create again is refused", "already exists" in tool(*create)
    yield "TopicCommand --describe", "PartitionCount: 3" in tool("TopicCommand", *at, "--describe", "--topic", "t")
    yield (
        "TopicCommand --alter",
        "exit code 0" in tool("TopicCommand", *at, "--alter", "--topic", "t", "--partitions", "4"),
    )
    yield "TopicCommand --list", "t\n" in tool("TopicCommand", *at, "--list")


def _consumes(tool: Run, at: tuple[str, str], protocol: str) -> bool:
    text = tool(
        *("VerifiableConsumer", *at, "--topic", "t", "--group-id", protocol, "--group-protocol", protocol),
        *("--max-messages", str(_MESSAGES), "--reset-policy", "earliest"),
    )
    events = _events(text)
    consumed = sum(event["count"] for event in events.get("records_consumed", []))
    commits = [event["success"] for event in events.get("offsets_committed", [])]
    return consumed >= _MESSAGES and bool(commits) and all(commits) and "shutdown_complete" in events


def _groups(tool: Run, at: tuple[str, str]) -> Iterator[Check]:
    command = "consumer.group.ConsumerGroupCommand"
    shown = tool(command, *at, "--describe", "--group", "classic")
    yield "ConsumerGroupCommand --describe", bool(re.search(r"^classic\s+t\s+\d+\s+\d+\s+\d+", shown, re.MULTILINE))
    yield "ConsumerGroupCommand --list", "classic" in tool(command, *at, "--list")
    reset = ("--reset-offsets", "--to-earliest", "--topic", "t", "--execute")
    yield "ConsumerGroupCommand --reset-offsets", "exit code 0" in tool(command, *at, "--group", "classic", *reset)
    yield "ConsumerGroupCommand --delete", "was successful" in tool(command, *at, "--delete", "--group", "classic")


def _transactions(tool: Run, at: tuple[str, str]) -> Iterator[Check]:
    """By the second protocol, which Java's clients choose; and one by the first, which an administrator ends."""
    for topic in ("input", "output"):
        tool("TopicCommand", *at, "--create", "--topic", topic, "--partitions", "1")
    speed = tool(
        *("ProducerPerformance", "--topic", "input", "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--transactional-id", "perf", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={at[1]}"),
    )
    yield "ProducerPerformance in transactions", "5000 records sent" in speed
    copied = tool(
        *("TransactionalMessageCopier", "--broker-list", at[1], "--input-topic", "input", "--input-partition", "0"),
        *("--output-topic", "output", "--transactional-id", "copy", "--consumer-group", "copiers"),
        *("--transaction-size", "200", "--max-messages", "5000", "--enable-random-aborts"),
    )
    yield "TransactionalMessageCopier with aborts", '"remaining":0' in copied
    yield "TransactionalMessageCopier: each message once", _count(at[1], "output") == 5000
    open_one = Producer({"bootstrap.servers": at[1], "transactional.id": "hanging", "log_level": 0})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce("input", b"left")
    open_one.flush(30)
    command = "TransactionsCommand"
    yield (
        "TransactionsCommand list",
        bool(re.search(r"^hanging\s+\d+\s+\d+\s+Ongoing", tool(command, *at, "list"), re.MULTILINE)),
    )
    described = tool(command, *at, "describe", "--transactional-id", "hanging")
    yield "TransactionsCommand describe", "input-0" in described
    producers = tool(command, *at, "describe-producers", "--topic", "input", "--partition", "0")
    start = re.search(r"(\d+)\s*$", "\n".join(line.strip() for line in producers.splitlines() if line[:1].isdigit()))
    yield "TransactionsCommand describe-producers", start is not None
    where = ("--topic", "input", "--partition", "0", "--start-offset", start.group(1) if start else "0")
    yield "TransactionsCommand abort", "exit code 0" in tool(command, *at, "abort", *where)
    yield "TransactionsCommand abort: it is aborted", "CompleteAbort" in tool(command, *at, "list")


def _users(tool: Run, at: tuple[str, str]) -> Iterator[Check]:
    alice = ("kafka.admin.ConfigCommand", *at, "--entity-type", "users", "--entity-name", "alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        made = tool(*alice, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password=of-alice]")
        yield f"ConfigCommand --add-config {mechanism}", "Completed updating config for user alice" in made
    shown = "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=8192"
    yield "ConfigCommand --describe users", shown in tool(*alice, "--describe")
    gone = tool(*alice, "--alter", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    yield "ConfigCommand --delete-config", "exit code 0" in gone and "iterations" not in tool(*alice, "--describe")


def _count(servers: str, topic: str) -> int:
    """How many committed messages a topic of one partition has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while (message := consumer.poll(30)) is not None and message.error() is None:
        count += 1
    consumer.close()
    return count


def _events(text: str) -> dict[str, list[dict[str, int]]]:
    """The JSON lines of a verifiable client, by their names."""
    found: dict[str, list[dict[str, int]]] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            found.setdefault(event["name"], []).append(event)
    return found
