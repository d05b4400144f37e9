"""Kafka Connect, distributed, against the gateway: a file goes through a topic into another file, and a worker dies.

Connect keeps its connectors, offsets and states in compacted topics, and its workers are a group with a protocol of
their own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from conformance.gateways import free_port, gateway
from conformance.maven import jars

_VERSION = "4.1.0"
_TIMEOUT_S = 120.0
_LINES = 2000


def run(work: Path) -> int:
    """Returns the exit code."""
    classes = jars(
        work / "connect",
        f"org.apache.kafka:connect-runtime:{_VERSION}",
        f"org.apache.kafka:connect-file:{_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    failed = 0
    with TemporaryDirectory() as scratch, gateway(Path(scratch) / "gateway") as servers:
        for name, passed in _checks(classes, Path(scratch), servers):
            sys.stdout.write(f"{name:60} {'passed' if passed else 'FAILED'}\n")
            sys.stdout.flush()
            failed += not passed
    return 1 if failed else 0


def _checks(classes: Path, scratch: Path, servers: str) -> Iterator[tuple[str, bool]]:
    source, sink = scratch / "in.txt", scratch / "out.txt"
    first = [f"line {number}" for number in range(_LINES)]
    source.write_text("\n".join(first) + "\n")
    with _worker(classes, scratch, servers, 1) as url:
        _connector(url, "source", "FileStreamSource", file=str(source), topic="lines")
        _connector(url, "sink", "FileStreamSink", file=str(sink), topics="lines")
        yield "Connect: a file through a topic into a file", _until(lambda: _lines(sink) == first)
    more = [f"more {number}" for number in range(_LINES)]
    with source.open("a") as file:
        file.write("\n".join(more) + "\n")
    with _worker(classes, scratch, servers, 2) as url:
        # Its connectors and how far they came are in topics of the gateway. At least once: some may come again.
        yield (
            "Connect: another worker goes on where the first was killed",
            _until(lambda: _lines(sink)[-_LINES:] == more and set(_lines(sink)) == {*first, *more}),
        )
        running = [f"{name}/tasks/0" for name in ("source", "sink")]
        yield (
            "Connect: both tasks run",
            _until(lambda: all(_get(f"{url}/connectors/{task}/status")["state"] == "RUNNING" for task in running)),
        )


@contextmanager
def _worker(classes: Path, scratch: Path, servers: str, number: int) -> Iterator[str]:
    """Its address. It is killed in the end, as by a crash."""
    port = free_port()
    settings = {
        "bootstrap.servers": servers,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "10000",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",
        "offset.storage.partitions": "3",
        "status.storage.partitions": "2",
    }
    for kind in ("config", "offset", "status"):
        settings |= {f"{kind}.storage.topic": f"connect-{kind}", f"{kind}.storage.replication.factor": "1"}
    config = scratch / f"worker-{number}.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = ["java", "-cp", f"{classes}/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(config)]
    with (scratch / f"worker-{number}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            if not _until(lambda: "version" in _get(url)):
                raise SystemExit(f"the worker did not start: {Path(log.name).read_text()[-2000:]}")
            yield url
        finally:
            process.kill()
            process.wait()


def _connector(url: str, name: str, kind: str, **settings: str) -> None:
    config = {"connector.class": kind, "tasks.max": "1", **settings}
    # Refused while the workers agree on who does what. To put it there twice does no harm.
    if not _until(lambda: httpx.put(f"{url}/connectors/{name}/config", json=config, timeout=30).is_success):
        raise SystemExit(f"the connector {name} was not taken")


def _get(url: str) -> dict[str, str]:
    found: dict[str, str] = httpx.get(url, timeout=30).raise_for_status().json()
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if condition():
                return True
        except (httpx.HTTPError, OSError):
            pass
        time.sleep(0.2)
    return False
