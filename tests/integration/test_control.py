"""The control plane over real HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.config import Config
from headgate.control.dashboard import Stores
from headgate.control.http import ControlServer
from headgate.control.logs import configure_logs
from headgate.control.pipelines import PipelineControl
from headgate.model import ConfigError, ConnectError, OccupiedError, Status
from headgate.pipeline.report import Report, Reporter

SNAPSHOT = {"pipeline": "orders", "id": "s2", "replaces": ["s1"], "state": "running", "schema": "public",
            "table": "users", "rows": 5}  # fmt: skip


class Fake:
    """The part of a service that the HTTP interface sees."""

    def __init__(self) -> None:
        self.reporter = Reporter("orders", "random", ("events",))
        self.stopped = threading.Event()

    def reports(self) -> list[Report]:
        return [self.reporter.report]

    def status(self) -> dict[str, Any]:
        return {"phase": "running", "pipelines": [report.as_dict() for report in self.reports()]}

    def stream_info(self, stream: str) -> dict[str, Any] | None:
        if stream == "broken":
            raise ConnectError("gone", remedy="start it")
        return {"name": stream, "messages": 3} if stream == "S" else None

    def gateway_metrics(self) -> dict[str, Any] | None:
        return None

    def relay_metrics(self) -> dict[str, Any] | None:
        return {"connections": 3, "events_total": 7, "latest": []}

    def registry_metrics(self) -> dict[str, Any] | None:
        return None

    def broker_metrics(self) -> dict[str, Any] | None:
        return None

    def stores(self) -> Stores:
        return Stores()

    def snapshots(self) -> list[dict[str, Any]]:
        return [SNAPSHOT]

    def request_snapshot(self, table: str, **options: Any) -> dict[str, Any]:
        if table != "users":
            raise ConfigError(f"no pipeline publishes a table {table}", remedy="published tables: users")
        return {"accepted": True, "snapshot_id": "s2"} | options

    def cancel_snapshot(self, snapshot_id: str) -> dict[str, Any] | None:
        return SNAPSHOT | {"state": "cancelled"} if snapshot_id == "s2" else None

    def request_stop(self) -> None:
        self.stopped.set()

    def control(self) -> PipelineControl:
        return PipelineControl(Config(), [])


@pytest.fixture
def service() -> Fake:
    return Fake()


@pytest.fixture
def client(service: Fake) -> Iterator[httpx.Client]:
    server = ControlServer(service, "127.0.0.1", 0, None)
    server.start()
    with httpx.Client(base_url=server.url) as client:
        yield client
    server.stop()


def test_health(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}


def test_ready_follows_the_pipelines(client: httpx.Client, service: Fake) -> None:
    assert client.get("/ready").status_code == 503
    service.reporter.status(Status.RUNNING)
    assert client.get("/ready").status_code == 200
    service.reporter.status(Status.DEGRADED, ConnectError("gone"))
    assert client.get("/ready").json() == {"ready": False, "pipelines": {"orders": "degraded"}}


def test_status_carries_error_and_remedy(client: httpx.Client, service: Fake) -> None:
    service.reporter.status(Status.ERROR, ConnectError("gone", remedy="start it"))
    assert client.get("/status").json()["pipelines"][0]["error"]["remedy"] == "start it"


def test_snapshots(client: httpx.Client) -> None:
    assert client.get("/snapshots").json() == {"snapshots": [SNAPSHOT]}
    assert client.get("/snapshots/s1").json() == SNAPSHOT, "by the id of one that it replaces"
    assert client.get("/snapshots/s3").status_code == 404
    asked = client.post("/snapshots", json={"table": "users", "method": "filter"})
    assert (asked.status_code, asked.json()["method"]) == (202, "filter")
    assert client.delete("/snapshots/s2").json()["state"] == "cancelled"
    assert "headgate_snapshot_rows" in client.get("/metrics").text


@pytest.mark.parametrize(
    ("body", "status"), [("", 400), ("[]", 400), ("{}", 400), ('{"table": 1}', 400),
                         ('{"table": "users", "x": 1}', 400), ('{"table": "ghosts"}', 404)],
)  # fmt: skip
def test_a_bad_request_for_a_snapshot_is_told_what_to_do(client: httpx.Client, body: str, status: int) -> None:
    answer = client.post("/snapshots", content=body)
    assert answer.status_code == status
    assert answer.json()["remedy"]


def test_metrics_are_prometheus(client: httpx.Client, service: Fake) -> None:
    service.reporter.status(Status.RUNNING)
    service.reporter.batch(rows=7, payload_bytes=70, duplicates=1, seconds=0.5)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, sample.labels.get("status")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples[("headgate_rows_total", None)] == 7
    assert samples[("headgate_duplicates_total", None)] == 1
    assert samples[("headgate_pipeline_status", "running")] == 1
    assert samples[("headgate_pipeline_status", "error")] == 0


def test_stream_info(client: httpx.Client) -> None:
    assert client.get("/streams/info?stream=S").json() == {"name": "S", "messages": 3}
    assert client.get("/streams/info").status_code == 404
    broken = client.get("/streams/info?stream=broken")
    assert (broken.status_code, broken.json()["remedy"]) == (502, "start it")


def test_shutdown_needs_post(client: httpx.Client, service: Fake) -> None:
    assert client.get("/shutdown").status_code == 405
    assert not service.stopped.is_set()
    assert client.post("/shutdown").status_code == 202
    assert service.stopped.is_set()


def test_another_web_page_may_not_steer_it(client: httpx.Client, service: Fake) -> None:
    answer = client.post("/shutdown", headers={"Origin": "https://example.org"})
    assert answer.status_code == 403
    assert not service.stopped.is_set()


def test_a_token_guards_everything_but_health(service: Fake) -> None:
    server = ControlServer(service, "127.0.0.1", 0, "s3cret")
    server.start()
    try:
        assert httpx.get(f"{server.url}/health").status_code == 200
        refused = httpx.post(f"{server.url}/shutdown", headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        assert httpx.get(f"{server.url}/status", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    finally:
        server.stop()


def test_a_taken_port_is_named(service: Fake) -> None:
    first = ControlServer(service, "127.0.0.1", 0, None)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(OccupiedError, match=f"127.0.0.1:{port}") as caught:
        ControlServer(service, "127.0.0.1", port, None)
    assert "control.port" in caught.value.remedy
    first.start()
    first.stop()


@pytest.fixture
def logs() -> StringIO:
    return StringIO()


def test_logfmt(logs: StringIO) -> None:
    configure_logs("info", "logfmt", logs)
    error = ConnectError("gone", remedy="start it").as_dict()
    logging.getLogger("headgate").error("pipeline failed", extra={"pipeline": "p", "error": error})
    line = logs.getvalue()
    assert 'level=error event="pipeline failed"' in line
    assert 'error_remedy="start it"' in line


def test_json_logs(logs: StringIO) -> None:
    configure_logs("info", "json", logs)
    logging.getLogger("headgate").info("METRICS", extra={"rows_total": 3})
    logging.getLogger("headgate").debug("not shown")
    (line,) = logs.getvalue().splitlines()
    assert json.loads(line)["rows_total"] == 3
