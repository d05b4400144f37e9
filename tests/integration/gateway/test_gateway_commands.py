"""`headgate gateway` and the gateway of `headgate run`, as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from headgate.commitlog.install import plan
from headgate.control.gateway import GatewayProcess
from headgate.gateway import GatewayOptions
from headgate.model import OccupiedError
from headgate.runtime.listening import listen
from headgate.wire.kafka.messages.produce import PRODUCE
from tests.gateway.raw import RawClient, produce_request

TIMEOUT_S = 40.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


@contextmanager
def headgate(*arguments: str, config: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that is running; ended with SIGTERM if the test has not ended it."""
    command = [sys.executable, "-m", "headgate", *arguments, "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def config(tmp_path: Path, fresh_database: str) -> Path:
    file = tmp_path / "headgate.toml"
    file.write_text(
        f'[project]\ndata_dir = "{tmp_path}/data"\n[postgres]\nurl = "{fresh_database}"\n[nats]\nurl = "nats://unused:1"\n'
        "[control]\nport = 0\n[gateway]\nenabled = true\nport = 0\n"
    )
    return file


def test_the_command_serves_and_drains(config: Path, topic: str) -> None:
    with headgate("gateway", "--json", config=config) as process:
        assert process.stdout is not None
        told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        port = int(told["bootstrap"].rpartition(":")[2])
        with RawClient(port) as client:
            client.create(topic)
            for number in range(20):
                client.send(PRODUCE, 9, produce_request(topic, b"%d" % number))
            assert client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset == 0
            process.send_signal(signal.SIGTERM)
            answered = 1
            while client.receive_frame() is not None:
                answered += 1
        assert process.wait(TIMEOUT_S) == 0
        assert answered >= 1


def test_what_the_command_says_works(config: Path, topic: str) -> None:
    with headgate("gateway", config=config) as process:
        assert process.stdout is not None
        name, _, bootstrap = process.stdout.readline().strip().partition("=")
        assert (name, bootstrap.partition(":")[0]) == ("bootstrap.servers", "127.0.0.1")
        if shutil.which("kcat"):
            _try_kcat(bootstrap, topic)
        process.send_signal(signal.SIGINT)
        _, notes = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert f"clients are told {bootstrap}" in notes
    assert f"kcat -b {bootstrap}" in notes
    if not shutil.which("kcat"):
        pytest.skip("the rest needs kcat (apt-get install kcat)")


def _try_kcat(bootstrap: str, topic: str) -> None:
    def kcat(*arguments: str, text: str = "") -> str:
        command = ["kcat", "-b", bootstrap, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kcat("-t", topic, "-P", "-z", codec, "-H", "k=1", "-H", "k=2", text=f"hello {codec}\n")
    got = kcat("-t", topic, "-C", "-o", "beginning", "-e", "-q", "-f", "%o %s %h\n")
    assert got.splitlines()[-1] == "4 hello zstd k=1,k=2"
    assert topic in {each["topic"] for each in json.loads(kcat("-L", "-J"))["topics"]}


def test_a_port_that_is_taken_is_named(config: Path) -> None:
    with listen("127.0.0.1", 0, backlog=1, where="test") as taken:
        port = str(taken.getsockname()[1])
        with headgate("gateway", "--port", port, config=config) as process:
            _, notes = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 4
    assert f"cannot listen on 127.0.0.1:{port}" in notes


def test_run_keeps_a_gateway_alive(config: Path, topic: str) -> None:
    """It is shown, counted, and started again at the same address when it dies."""
    run_file = config.parent / "data" / "run" / "control.json"
    with headgate("run", config=config) as process:
        wait_for(run_file.exists, "it did not start")
        url = json.loads(run_file.read_text())["url"]
        wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200, "it was never ready")

        def gateway() -> dict[str, object]:
            found: dict[str, object] = httpx.get(f"{url}/status").json()["gateway"]
            return found

        first = gateway()
        assert first["status"] == "running"
        producer = Producer({"bootstrap.servers": str(first["advertised"])})
        producer.produce(topic, b"x")
        assert producer.flush(TIMEOUT_S) == 0

        def produced() -> bool:
            families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
            samples = [each for family in families for each in family.samples]
            return any(
                each.name == "headgate_gateway_requests_total" and each.labels["api"] == "Produce" for each in samples
            )

        wait_for(produced, "the requests were not counted")
        assert isinstance(first["pid"], int)
        os.kill(first["pid"], signal.SIGKILL)
        wait_for(lambda: gateway()["restarts_total"] == 1 and gateway()["status"] == "running", "not started again")
        assert gateway()["advertised"] == first["advertised"]
        producer.produce(topic, b"y")
        assert producer.flush(TIMEOUT_S) == 0
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_gateway_that_cannot_start_says_why(fresh_database: str) -> None:
    with listen("127.0.0.1", 0, backlog=1, where="test") as taken:
        options = GatewayOptions(postgres_url=fresh_database, port=taken.getsockname()[1])
        with pytest.raises(OccupiedError, match="cannot listen"):
            GatewayProcess(options).start()


def test_a_server_that_goes_away_during_the_start_is_told(config: Path, fresh_database: str) -> None:
    """As one that is shut down does: it ends the sessions that it has, and the start is in the middle of one."""
    waiting = "select pid from pg_locks where locktype = 'advisory' and not granted and database = %s"
    with psycopg.connect(fresh_database, autocommit=True) as admin, headgate("gateway", config=config) as process:
        # Installers queue at this lock; it is taken before the gateway comes to it, which compiles first.
        admin.execute("select pg_advisory_lock(%s)", [plan().lock])
        (database,) = admin.execute("select oid from pg_database where datname = current_database()").fetchone() or ()
        wait_for(lambda: admin.execute(waiting, [database]).fetchone() is not None, "nobody installs")
        (pid,) = admin.execute(waiting, [database]).fetchone() or ()
        admin.execute("select pg_terminate_backend(%s)", [pid])
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 4, errors
    assert "terminating connection" in errors
    assert "Traceback" not in errors
