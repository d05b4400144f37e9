"""A service as the control plane sees it: a real configuration, real pipelines, and a real HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from headgate.config import load
from headgate.control.dashboard import Stores
from headgate.control.http import ControlServer
from headgate.control.pipelines import PipelineControl
from headgate.pipeline.assemble import assemble
from headgate.pipeline.report import Report
from headgate.pipeline.supervisor import Supervisor
from headgate.snapshots.service import check_options
from tests.described import check_answer

MakeShop = Callable[..., "Shop"]


class Shop:
    """`Service` without servers of its own; without Spark, its pipelines are never started."""

    def __init__(self, path: Path, spark: SparkSession | None = None) -> None:
        self.path = path
        self.config = load(path)
        specs = assemble(self.config, nats_url="nats://127.0.0.1:1", postgres_url="postgres://127.0.0.1:1/x")
        self.supervisors = [Supervisor(spec, spark) for spec in specs]  # type: ignore[arg-type]
        self.stops = 0

    def supervisor(self, name: str) -> Supervisor:
        return next(each for each in self.supervisors if each.spec.name == name)

    def reports(self) -> list[Report]:
        return [supervisor.report for supervisor in self.supervisors]

    def status(self) -> dict[str, Any]:
        return {"phase": "running", "pipelines": [report.as_dict() for report in self.reports()]}

    def control(self) -> PipelineControl:
        return PipelineControl(self.config, self.supervisors, lambda: load(self.path))

    def stream_info(self, stream: str) -> dict[str, Any] | None:
        return None

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
        return []

    def request_snapshot(self, table: str, **options: Any) -> dict[str, Any]:
        check_options(options.get("method", "export"), options.get("chunk_rows", 0))
        return {"accepted": True}

    def cancel_snapshot(self, snapshot_id: str) -> dict[str, Any] | None:
        return None

    def request_stop(self) -> None:
        self.stops += 1


def serving(shop: Shop, token: str | None = None) -> Iterator[httpx.Client]:
    server = ControlServer(shop, "127.0.0.1", 0, token)
    server.start()
    with httpx.Client(base_url=server.url, timeout=60, event_hooks={"response": [check_answer]}) as client:
        yield client
    server.stop()


ROUTED = """
[project]
data_dir = "data"

[sources.clicks]
type = "random"

[destinations.memory]
type = "memory"

[pipelines.p]
source = "clicks"
destinations = ["memory"]

[pipelines.p.routing]
topic_column = "kind"
default_topic = "rest"
partition_key_column = "customer"
partition_key_encoding = "partition_id"
topic_defaults = { partitions_count = 4 }

[pipelines.plain]
source = "clicks"
destinations = ["memory"]
topic = "t"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Two pipelines that stand still: `p` is routed and has some history, `plain` is not."""
    path = tmp_path_factory.mktemp("shop") / "headgate.toml"
    path.write_text(ROUTED)
    return Shop(path)


@pytest.fixture(scope="module")
def client(shop: Shop) -> Iterator[httpx.Client]:
    yield from serving(shop)
