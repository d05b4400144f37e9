"""Real pipelines steered over HTTP, from their first failure to their end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from headgate.destinations.memory import MemoryDestination

from .conftest import Shop, serving

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

FILE = """
[project]
data_dir = "data"

[sources.clicks]
type = "random"
rows_per_second = 0
rows = 300
max_rows_per_batch = 100

[sources.others]
type = "random"
rows_per_second = 0
rows = 10

[destinations.memory]
type = "memory"
max_rows = 100_000

[pipelines.p]
source = "clicks"
destinations = ["memory"]
failure_threshold = 2

[pipelines.p.routing]
topic_column = "kind"
default_topic = "rest"

[pipelines.p.routing.admission]
mode = "allowlist"
allowlist = [{ topic = "order" }, { topic = "payment" }]
on_admission_failure = "error"

[pipelines.old]
source = "others"
destinations = ["memory"]
topic = "t"
"""


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Iterator[Shop]:
    path = tmp_path / "headgate.toml"
    path.write_text(FILE)
    old = tmp_path / "data" / "pipelines" / "old"
    old.mkdir(parents=True)
    (old / "state.json").write_text(json.dumps({"version": 99}))
    shop = Shop(path, spark)
    yield shop
    for supervisor in shop.supervisors:
        supervisor.stop()
    for supervisor in shop.supervisors:
        assert supervisor.join(60)


@pytest.fixture
def client(shop: Shop) -> Iterator[httpx.Client]:
    yield from serving(shop)


class Pages:
    """What the pages say of the pipeline `p`."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def get(self, path: str = "") -> dict[str, Any]:
        answer = self._client.get(f"/pipelines/p{path}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post(self, path: str, body: dict[str, Any] | None = None, expected: int = 202) -> dict[str, Any]:
        answer = self._client.post(path, json=body) if body is not None else self._client.post(path)
        assert answer.status_code == expected, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_for(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while not what(shown := self.get()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        return shown

    def wait_for_status(self, status: str) -> dict[str, Any]:
        return self.wait_for(lambda shown: shown["status"] == status)


def test_a_pipeline_from_failure_to_end(shop: Shop, client: httpx.Client) -> None:
    pages = Pages(client)
    for supervisor in shop.supervisors:
        supervisor.start()
    memory = shop.supervisor("p").spec.destinations[0]
    assert isinstance(memory, MemoryDestination)

    # Rows that are not on the list are an error, so nothing of the first batch goes anywhere.
    degraded = pages.wait_for_status("degraded")
    assert "unknown" in degraded["error"]["message"]
    assert "allowlist" in degraded["error"]["remedy"]
    assert 'headgate_pipeline_status{pipeline="p",status="degraded"} 1.0' in client.get("/metrics").text
    assert (degraded["rows_total"], memory.messages) == (0, [])
    told = client.post("/pipelines/p/explain", json={"rows": [{"kind": "order"}, {"kind": "return"}]}).json()["rows"]
    assert [each["verdicts"][0]["admission"] for each in told] == ["admitted", "refused: unknown -> error"]

    # V15, meanwhile: the other pipeline has state of another version.
    old = client.get("/pipelines/old").json()
    assert (old["status"], old["error"]["kind"]) == ("error", "state")
    assert "version 99, this headgate reads version 1" in old["error"]["message"]

    # The batch is given up, by its older name and by that of its source; the next one fails as well.
    assert pages.post("/sources/clicks/cdc/abandon-batch", {"batch_id": degraded["failing_batch"]}) == {
        "pipeline": "p",
        "abandoned_batch": 0,
    }
    after = pages.wait_for(lambda shown: shown["last_abandon_at"] is not None and shown["failures_in_row"] > 0)
    assert after["abandoned_total"] == 1

    # A mistake changes nothing; better rules mend it in place.
    shop.path.write_text(FILE.replace('mode = "allowlist"', 'mode = "allow"'))
    assert "mode" in pages.post("/reload", expected=422)["title"]
    shop.path.write_text(FILE.replace('"error"', '"dlq"'))
    assert pages.post("/reload", expected=200) == {"epochs": {"p": 1}, "needs_restart": []}
    shown = pages.wait_for(lambda shown: shown["rows_total"] == 200)
    assert (shown["status"], shown["error"], shown["failures_in_row"]) == ("running", None, 0)
    delivered = len(memory.messages)
    assert 0 < delivered < 200
    assert {message.topic for message in memory.messages} == {"order", "payment"}
    destinations = pages.get("/destinations")["destinations"]
    assert [(each["topic"], each["circuit"]) for each in destinations] == [("order", "closed"), ("payment", "closed")]

    # What was refused is in the dead letters.
    letters = pages.get("/dead-letters?limit=3&topic=return")
    assert letters["counts"] == {"unknown": 200 - delivered}
    assert [each["topic"] for each in letters["dead_letters"]] == ["return"] * 3
    first = letters["dead_letters"][0]["number"]
    one = pages.get(f"/dead-letters/{first}")
    assert (json.loads(one["payload"])["kind"], one["epoch"], one["reason"]) == ("return", 1, "unknown")
    assert pages.get(f"/dead-letters?after={first}&limit=1")["dead_letters"][0]["number"] > first
    kept = pages.post("/pipelines/p/dead-letters/replay", {"numbers": [first]}, 200)
    assert kept == {"pipeline": "p", "delivered": 0, "kept": {"unknown": 1}}
    moved = {"numbers": [first], "to": {"topic": "payment"}}
    assert pages.post("/pipelines/p/dead-letters/replay", moved, 200)["delivered"] == 1
    assert pages.post("/pipelines/p/dead-letters/replay", moved, 404)["remedy"]
    assert client.get(f"/pipelines/p/dead-letters/{first}").status_code == 404
    assert pages.post("/pipelines/p/dead-letters/purge", {"reason": "cap"}, 200) == {"purged": 0}
    shop.path.write_text(FILE.replace('mode = "allowlist"', 'mode = "open"'))
    assert pages.post("/reload", expected=200)["epochs"] == {"p": 1}
    rest = pages.post("/pipelines/p/dead-letters/replay", {"reason": "unknown"}, 200)
    assert rest == {"pipeline": "p", "delivered": 199 - delivered, "kept": {}}
    assert len(memory.messages) == 200
    assert pages.get("/dead-letters") == {"counts": {}, "dead_letters": []}

    offsets = client.get("/connectors/clicks/offsets").json()
    assert (offsets["state"]["batch_id"], offsets["state"]["rows"], offsets["pipeline"]) == (2, 200, "p")
    assert json.loads(offsets["end_offset"]) if isinstance(offsets["end_offset"], str) else offsets["end_offset"]

    # Pause, resume, restart, stop, and again.
    assert pages.post("/pipelines/p/abandon-batch", {"all": True}, expected=409)["remedy"]
    pages.post("/pipelines/p/pause")
    pages.wait_for_status("paused")
    assert client.get("/ready").status_code == 503
    pages.post("/sources/clicks/resume")
    pages.wait_for_status("running")
    query = shop.supervisor("p").query
    pages.post("/connectors/p/restart")
    pages.wait_for(lambda shown: shop.supervisor("p").query is not query and shown["status"] == "running")
    pages.post("/pipelines/p/stop")
    stopped = pages.wait_for_status("stopped")
    assert shop.supervisor("p").join(30)
    passed = [change["status"] for change in stopped["history"]]
    assert passed[-3:] == ["running", "stopping", "stopped"]
    assert {"degraded", "paused"} <= set(passed)
    pages.post("/pipelines/p/restart")
    pages.wait_for_status("running")
    assert len(memory.messages) == 200, "nothing comes twice"
