"""The control plane with 50 pipelines and 5,000 destinations: pages, viewers, metrics, memory.

The state is made up, and moves between two renderings as that of busy pipelines does; what renders and serves it is the
real server. Viewers are connections of another process, so that the CPU is that of the server alone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil

from bench.harness import Bench
from headgate.control import metrics
from headgate.control.dashboard import Stores
from headgate.control.http import ControlServer
from headgate.model import DeliveryError, Status
from headgate.pipeline.report import Report, Reporter

_PIPELINES, _DESTINATIONS = 50, 5_000
_VIEWERS = 150
_TURNS = 15
_FOLLOW = """
import select, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
links = [socket.create_connection((host, port)) for _ in range(count)]
for link in links:
    link.sendall(f"GET /dashboard/live/ HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
print("following", flush=True)
received, ended = 0, False
while not ended:
    for link in select.select([*links, sys.stdin], [], [])[0]:
        if link is sys.stdin:
            ended = True
        else:
            received += len(link.recv(1 << 20))
print(received, flush=True)
"""


class _Control:
    """As the control of running pipelines speaks of them."""

    def __init__(self, service: _Busy) -> None:
        self._service = service

    def kinds(self) -> dict[str, dict[str, str]]:
        names = range(_PIPELINES)
        return {
            "sources": {f"source-{number}": "postgres-cdc" for number in names},
            "destinations": {f"events-{number}": "nats" for number in names},
        }

    def destinations(self, key: str | None = None) -> list[dict[str, Any]]:
        if key is None:
            return [each for number in range(_PIPELINES) for each in self._of(number)]
        return self._of(int(key.rpartition("-")[2]))

    def _of(self, number: int) -> list[dict[str, Any]]:
        return [
            {
                "pipeline": f"pipeline-{number}",
                "destination": f"events-{number}",
                "stream": f"tenant-{number}",
                "topic": f"orders.created.{topic}",
                "partitions": 1,
                "circuit": "open" if topic == 7 else "closed",
                "retry_in_seconds": 3.0 if topic == 7 else 0.0,
                "rows_total": self._service.turn * topic,
                "failures_total": topic % 3,
                "error": None,
            }
            for topic in range(_DESTINATIONS // _PIPELINES)
        ]


class _Busy:
    """A service whose pipelines have always just delivered something."""

    def __init__(self) -> None:
        self.turn = 0
        self._reporters = [
            Reporter(f"pipeline-{number}", f"source-{number}", (f"events-{number}",)) for number in range(_PIPELINES)
        ]
        for number, reporter in enumerate(self._reporters):
            reporter.started()
            if number % 10 == 9:
                reporter.status(Status.ERROR, DeliveryError("the stream is full", remedy="raise max_bytes"))

    def reports(self) -> list[Report]:
        self.turn += 1
        for number, reporter in enumerate(self._reporters):
            if number % 10 != 9:
                reporter.batch(rows=100 + number, payload_bytes=40_000, duplicates=0, seconds=0.2)
        return [_with_details(reporter.report) for reporter in self._reporters]

    def status(self) -> dict[str, Any]:
        return {"phase": "running", "pipelines": [report.as_dict() for report in self.reports()]}

    def snapshots(self) -> list[dict[str, Any]]:
        return []

    def stores(self) -> Stores:
        return Stores()

    def control(self) -> _Control:
        return _Control(self)

    def gateway_metrics(self) -> None:
        return None

    broker_metrics = relay_metrics = gateway_metrics


def _with_details(report: Report) -> Report:
    counts = [0] * 14
    report.source_details.update(
        slot=f"slot_{report.pipeline}", publication="shop", reader="streaming", slot_active=True, slot_level="ok",
        slot_retained_bytes=16 << 20, slot_safe_wal_bytes=1 << 30, slot_wal_status="reserved", lag_bytes=4096,
        spool_bytes=1 << 20, rows_set_aside=0,
    )  # fmt: skip
    report.routing.update(
        epoch=1, destinations_active=_DESTINATIONS // _PIPELINES, circuits_open=1, routed_total=report.rows_total,
        refused_total={"cap": 3}, unmatched_total={}, absent_total=0, dead_letters_total=3, unmatched_samples=[],
        create_seconds={"limits": [0.1] * 13, "counts": counts, "sum": 0.0},
    )  # fmt: skip
    return report


def measure(bench: Bench) -> None:
    process, service = psutil.Process(), _Busy()
    before = process.memory_info().rss
    anything: Any = service
    server = ControlServer(anything, "127.0.0.1", 0, None)
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            _pages(bench, client)
            _metrics(bench, client, service)
        _viewers(bench, server, 5.0 if bench.quick else 20.0)
        bench.figure("memory_mb", (process.memory_info().rss - before) / 1e6)
    finally:
        server.stop()


def _pages(bench: Bench, client: httpx.Client) -> None:
    shared = sum(len(client.get(f"/dashboard/static/{name}").content) for name in
                 ("dashboard.css", "dashboard.js", "icon.svg"))  # fmt: skip
    bench.figure("static_bytes", shared)
    for name, path in (("overview", "/"), ("destinations", "/dashboard/destinations")):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "cannot be shown" not in answer.text
        bench.figure(f"{name}_bytes", len(answer.content))
        bench.figure(f"{name}_ms", 1000 * _median(lambda path=path: _fresh(client, path)))  # type: ignore[misc]
    bench.check("first_paint_bytes", bench.figures["overview_bytes"] + shared, 250_000, "lower")


def _fresh(client: httpx.Client, path: str) -> float:
    """Seconds of a request whose rendering is not kept from the last one."""
    time.sleep(1.05)
    began = time.perf_counter()
    client.get(path)
    return time.perf_counter() - began


def _metrics(bench: Bench, client: httpx.Client, service: _Busy) -> None:
    reports = service.reports()
    bench.figure("metrics_bytes", len(metrics.render(reports)))
    bench.figure("metrics_render_ms", 1000 * _median(lambda: _seconds(lambda: metrics.render(reports))))
    bench.figure("metrics_request_ms", 1000 * _median(lambda: _seconds(lambda: client.get("/metrics"))))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _median(sample: Callable[[], float]) -> float:
    return statistics.median(sample() for _ in range(_TURNS))


def _viewers(bench: Bench, server: ControlServer, seconds: float) -> None:
    """CPU of the server with nobody, with one and with many who look at the overview, and what each is sent.

    What a viewer adds is the difference of the last two. On a machine that is busy it may drown in the noise, and be
    negative: then it says nothing.
    """
    used = {count: _share(bench, server, count, seconds) for count in (0, 1, _VIEWERS)}
    bench.figure("cpu_percent_nobody", 100 * used[0])
    bench.figure("cpu_percent_one_viewer", 100 * used[1])
    bench.figure(f"cpu_percent_{_VIEWERS}_viewers", 100 * used[_VIEWERS])
    bench.figure("cpu_percent_per_viewer", 100 * (used[_VIEWERS] - used[1]) / (_VIEWERS - 1))


def _share(bench: Bench, server: ControlServer, count: int, seconds: float) -> float:
    """Of a core, in the process of the server, which is this one."""
    if not count:
        return _used(seconds)
    host, port = server.url.removeprefix("http://").split(":")
    command = [sys.executable, "-c", _FOLLOW, host, port, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as followers:
        assert followers.stdin is not None
        assert followers.stdout is not None
        followers.stdout.readline()
        time.sleep(2)
        used = _used(seconds)
        assert server.dashboard.viewers == count  # whoever was refused costs nothing
        followers.stdin.close()
        received = int(followers.stdout.readline())
    if count > 1:
        bench.figure("bytes_per_viewer_and_second", received / count / (seconds + 2))
    return used


def _used(seconds: float) -> float:
    began, cpu = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - began)
