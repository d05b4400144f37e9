"""A mirror by its recipe, as docs/shadow.md types it, beside a real Apache Kafka."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.acceptance.conftest import Project
from tests.acceptance.test_kill import wait_for
from tests.apache_kafka import ApacheKafka
from tests.documents import block
from tests.integration.shadow.mirroring import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path / "kafka") as started:
        yield started


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def statuses(project: Project) -> list[dict[str, Any]]:
    told = project.run("shadow", "status", "--json")
    return json.loads(told.stdout)["links"] if told.stdout.startswith("{") else []


def is_equal(project: Project, messages: int) -> bool:
    topics = [topic for link in statuses(project) for topic in link["topics"]]
    return [(each["mirrored_records"], each["lag_records"]) for each in topics] == [(messages, 0)]


def test_the_recipe_mirrors_what_clients_write(project: Project, kafka: ApacheKafka) -> None:
    assert block("docs/shadow.md", "headgate init").commands == [
        "headgate init --recipe shadow",
        "headgate run",
        "headgate shadow status",
    ]
    assert project.run("init", "--recipe", "shadow").returncode == 0
    path, port = project.directory / "headgate.toml", free_port()
    text = path.read_text().replace("kafka.example.com:9092", kafka.servers).replace("port = 9092", f"port = {port}")
    path.write_text(text + "\n[control]\nport = 0\n")
    assert project.run("validate").returncode == 0
    checked = project.run("check")
    assert "cluster headgateTest" in checked.stdout + checked.stderr
    process = project.start("run")
    try:
        wait_for(lambda: project.status() is not None, process)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        for number in range(100):
            producer.produce("greetings", b"hello %d" % number, b"key")
        assert producer.flush(30) == 0
        wait_for(lambda: is_equal(project, 100), process)
        shown = project.run("shadow", "status")
        assert shown.returncode == 0, shown.stdout
        assert "mirror: to 127.0.0.1" in shown.stdout
        assert "greetings" in shown.stdout
        told = project.run("shadow", "status", "nobody")
        assert (told.returncode, "links here: mirror" in told.stderr) == (2, True)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    (found,) = consumed(kafka.servers, "greetings", 1)
    assert [value for _, _, value, *_ in found] == [b"hello %d" % number for number in range(100)]
