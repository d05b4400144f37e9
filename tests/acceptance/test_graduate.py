"""The example that moves live clients from PostgreSQL to an Apache Kafka, as its README says, and Java's, too."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from headgate.embedded import Stack
from tests.acceptance.conftest import HEADGATE, Project
from tests.acceptance.test_bridge_gaps import wait_until
from tests.acceptance.test_gateway_chaos import free_port
from tests.apache_kafka import ApacheKafka, kafka_classes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "graduate_to_kafka"
TIMEOUT_S = 120.0


class Program:
    """A process whose output goes to a file."""

    def __init__(self, directory: Path, name: str, *command: str) -> None:
        self._path = directory / f"{name}.log"
        with self._path.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)

    @property
    def lines(self) -> list[str]:
        return self._path.read_text(errors="replace").splitlines()

    def stop(self, sign: signal.Signals = signal.SIGINT) -> int:
        if self._process.poll() is None:
            self._process.send_signal(sign)
        return self._process.wait(TIMEOUT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)


def python(project: Project, name: str, *arguments: str) -> Program:
    return Program(project.directory, "-".join((name, *arguments[2:])), sys.executable, f"{name}.py", *arguments)


def java(project: Project, name: str, *arguments: str) -> Program:
    tool = ("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_classes()}/*")
    return Program(project.directory, f"java-{name}", *tool, f"org.apache.kafka.tools.{name}", *arguments)


def numbers(*programs: Program) -> Counter[int]:
    return Counter(int(line) for program in programs for line in program.lines if line.isdecimal())


def java_values(*programs: Program) -> Counter[str]:
    events = (json.loads(line) for program in programs for line in program.lines if line.startswith("{"))
    return Counter(str(event["value"]) for event in events if event.get("name") == "record_data")


def java_acked(program: Program) -> Counter[str]:
    events = (json.loads(line) for line in program.lines if line.startswith("{"))
    return Counter(str(event["value"]) for event in events if event.get("name") == "producer_send_success")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path / "kafka") as started:
        yield started


@contextmanager
def example(project: Project, kafka: ApacheKafka) -> Iterator[tuple[str, Program]]:
    """The example's files in a directory of their own, and `headgate run` there, with the gateway's address."""
    port = free_port()
    for each in EXAMPLE.glob("*.py"):
        shutil.copy(each, project.directory)
    text = (EXAMPLE / "headgate.toml").read_text()
    text = text.replace("127.0.0.1:19092", kafka.servers).replace("port = 9092", f"port = {port}")
    project.write(text.replace('"orders"', '"orders|java"') + "\n[control]\nport = 0\n")
    with Stack(project.directory / ".headgate", nats=False, durable=False), ExitStack() as opened:
        run = Program(project.directory, "run", HEADGATE, "run")
        opened.callback(run.kill)
        wait_until(lambda: project.status() is not None, TIMEOUT_S)
        yield f"127.0.0.1:{port}", run


def await_mirror(project: Project) -> None:
    wait_until(lambda: project.run("shadow", "plan", "kafka").returncode == 0, TIMEOUT_S)


def await_more(java_consumer: Program, *consumers: Program) -> None:
    """Until each consumer has read a good deal more than now."""
    before, java_before = [len(numbers(each)) for each in consumers], len(java_values(java_consumer))
    wait_until(lambda: all(len(numbers(each)) > n + 400 for each, n in zip(consumers, before, strict=True)), TIMEOUT_S)
    wait_until(lambda: len(java_values(java_consumer)) > java_before + 400, TIMEOUT_S)


def test_live_clients_graduate(project: Project, kafka: ApacheKafka) -> None:
    with example(project, kafka) as (servers, run), ExitStack() as opened:
        at = ("--bootstrap-server", servers)
        producer = python(project, "producer", servers, "orders")
        consumers = [python(project, "consumer", servers, "orders", group) for group in ("billing", "audit")]
        settings = str(project.write("retries=2147483647\n", "producer.properties"))  # as everybody else has it
        java_producer = java(
            project,
            "VerifiableProducer",
            *(*at, "--topic", "java", "--throughput", "200", "--command-config", settings),
        )
        java_consumer = java(
            project,
            "VerifiableConsumer",
            *(*at, "--topic", "java", "--group-id", "reports", "--verbose", "--reset-policy", "earliest"),
            "--enable-autocommit",
        )
        for program in (producer, *consumers, java_producer, java_consumer):
            opened.callback(program.kill)
        wait_until(lambda: min(len(numbers(each)) for each in consumers) > 500, TIMEOUT_S)
        wait_until(lambda: len(java_values(java_consumer)) > 500, TIMEOUT_S)

        await_mirror(project)
        planned = project.run("shadow", "plan", "kafka")
        assert planned.returncode == 0, planned.stdout + planned.stderr
        assert "ready: headgate shadow cutover kafka" in planned.stdout
        moved = project.run("shadow", "cutover", "kafka", timeout_s=300)
        assert moved.returncode == 0, moved.stdout + moved.stderr
        assert moved.stdout.strip() == f"java, orders: at {kafka.servers}"

        await_more(java_consumer, *consumers)
        run.kill()  # nobody needs it any more
        await_more(java_consumer, *consumers)

        assert producer.stop() == 0, producer.lines[-3:]
        sent = int(producer.lines[-1].split()[1])
        wait_until(lambda: all(len(numbers(each)) == sent for each in consumers), TIMEOUT_S)
        for each in consumers:
            assert each.stop() == 0, [line for line in each.lines if "came after" in line][:5]
            assert numbers(each) == Counter(range(sent))
        java_producer.stop(signal.SIGTERM)
        acked = java_acked(java_producer)
        wait_until(lambda: java_values(java_consumer) >= acked, TIMEOUT_S)
        assert java_values(java_consumer) == acked
        assert not [line for line in java_producer.lines if "producer_send_error" in line]
        roll_back(project)


def roll_back(project: Project) -> None:
    """It says first what would be left behind, and what to do."""
    refused = project.run("shadow", "rollback", "kafka")
    assert refused.returncode == 5
    assert "were written to the other cluster" in refused.stderr
    assert "--discard" in refused.stderr
    back = project.run("shadow", "rollback", "kafka", "--discard")
    assert back.returncode == 0, back.stderr
    assert "restart them" in back.stderr
    with psycopg.connect(postgres_url(project)) as connection:
        assert connection.execute("select count(*) from kafka.moves").fetchone() == (0,)


def postgres_url(project: Project) -> str:
    running = Stack.attach(project.directory / ".headgate")
    assert running is not None
    assert running.postgres_url is not None
    return running.postgres_url
