"""What the pages show, and what they must not."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate import __version__
from headgate.model import DeliveryError, Status
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter, Selection

from .conftest import ROUTED, Shop, serving

SECRETS = """
[project]
data_dir = "data"

[postgres]
url = "postgres://me:s3cret-postgres@127.0.0.1:1/x"

[nats]
url = "nats://me:s3cret-nats@127.0.0.1:1"
password = "s3cret-nats-password"

[control]
token = "s3cret-token"

[sources.changes]
type = "postgres-cdc"
url = "postgres://me:s3cret-cdc@127.0.0.1:1/x"
slot = "s"
publication = "p"

[sources.polled]
type = "postgres-poll"
url = "postgres://me:s3cret-poll@127.0.0.1:1/x"
table = "t"
tracking_column = "id"
key_columns = ["id"]

[sources.hooks]
type = "webhook"
port = 0
keys = {{ shop = "s3cret-webhook-key" }}
signature = {{ scheme = "stripe", secrets = ["s3cret-signature"] }}

[destinations.nats]
type = "nats"
url = "nats://me:s3cret-own-nats@127.0.0.1:1"
stream = "S"
subjects = ["s.>"]

[destinations.kafka]
type = "kafka"
servers = "127.0.0.1:1"
security_protocol = "sasl_ssl"
sasl_mechanism = "PLAIN"
user = "me"
password = "s3cret-kafka"
settings = {{ "ssl.key.password" = "s3cret-kafka-setting" }}

[destinations.iggy]
type = "iggy"
user = "me"
password = "s3cret-iggy"

[destinations.iggy-token]
type = "iggy"
token = "s3cret-iggy-token"

[destinations.partner]
type = "webhook"
url = "http://127.0.0.1:1/s3cret-path/{{topic}}"
headers = {{ Authorization = "Bearer s3cret-header" }}
signature = {{ scheme = "standard", secrets = ["s3cret-out-signature"] }}

[destinations.table]
type = "table"
path = "s3://key:s3cret-bucket@bucket/path"

[pipelines.cdc]
source = "changes"
destinations = ["nats", "kafka", "iggy", "iggy-token", "partner", "table"]

[[pipelines.cdc.transforms]]
type = "route"
field = "kind"
mapping_url = "{mapping}"
mapping_token = "s3cret-mapping"

[pipelines.poll]
source = "polled"
destinations = ["nats"]
topic = "s.t"

[pipelines.hooks]
source = "hooks"
destinations = ["nats"]
topic = "s.t"
"""


@pytest.fixture
def mapping() -> Iterator[str]:
    """Served to those who have the token."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == "Bearer s3cret-mapping"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(b'{"a": "b"}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mapping"
    server.shutdown()
    server.server_close()


def test_secrets_are_masked_wherever_they_are_configured(tmp_path: Path, mapping: str) -> None:
    path = tmp_path / "headgate.toml"
    path.write_text(SECRETS.format(mapping=mapping))
    shop = Shop(path)
    for client in serving(shop):
        shown = client.get("/pipelines/cdc").json()["config"]
        assert set(shown["destinations"]) == {"nats", "kafka", "iggy", "iggy-token", "partner", "table"}
        assert shown["pipeline"]["transforms"][0]["mapping_token"] == "********"
        assert shown["destinations"]["kafka"]["settings"] == {"ssl.key.password": "********"}
        pages = ["/status", "/metrics", "/pipelines", "/destinations", "/openapi.json"]
        pages += [f"/pipelines/{name}{rest}" for name in ("cdc", "poll", "hooks") for rest in ("", "/destinations")]
        for page in pages:
            answer = client.get(page)
            assert answer.status_code == 200, page
            assert "s3cret" not in answer.text, page
        reloaded = client.post("/reload")
        assert reloaded.json() == {"epochs": {"cdc": 1}, "needs_restart": []}
        path.write_text(path.read_text().replace('mapping_token = "s3cret-mapping"', 'mapping_token = "s3cret-other"'))
        refused = client.post("/reload")
        assert (refused.status_code, "401" in refused.text, "s3cret" in refused.text) == (422, True, False)
    for supervisor in shop.supervisors:
        assert "s3cret" not in repr(supervisor.spec)


@pytest.fixture
def busy(tmp_path: Path) -> Shop:
    """A routed pipeline with something to tell in every metric."""
    path = tmp_path / "headgate.toml"
    path.write_text(ROUTED)
    shop = Shop(path)
    routing = shop.supervisor("p").routing
    assert routing is not None
    routing.table.admit([Address("shop", "orders"), Address("shop", "payments")])
    for _ in range(5):
        routing.table.failed("memory", Address("shop", "orders"), DeliveryError("no"))
    routing.counts = replace(
        routing.counts,
        routed=7,
        refused=Counter({"cap": 2, "denylist": 1}),
        unmatched=Counter({"default": 3}),
        absent=4,
        dead_letters=5,
    )
    return shop


def samples(text: str) -> dict[tuple[str, str], float]:
    """Name and labels -> value, of the pipeline `p`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "pipeline"}
            if sample.labels.get("pipeline") == "p":
                key = (sample.name, ",".join(f"{name}={value}" for name, value in labels.items()))
                assert key not in found
                found[key] = sample.value
    return found


def test_metrics_say_which_version_runs(busy: Shop) -> None:
    for client in serving(busy):
        text = client.get("/metrics").text
    assert f'headgate_build_info{{version="{__version__}"}} 1.0' in text
    assert "process_resident_memory_bytes" in text


def test_routing_has_metrics(busy: Shop) -> None:
    for client in serving(busy):
        text = client.get("/metrics").text
        found = samples(text)
    assert found[("headgate_messages_routed_total", "")] == 7
    assert found[("headgate_destinations_active", "")] == 2
    assert found[("headgate_destinations_rejected_total", "reason=cap")] == 2
    assert found[("headgate_destinations_rejected_total", "reason=denylist")] == 1
    assert found[("headgate_routing_unmatched_total", "action=default")] == 3
    assert found[("headgate_destination_create_seconds_count", "")] == 2
    assert found[("headgate_destination_create_seconds_bucket", "le=+Inf")] == 2
    assert found[("headgate_destination_circuit_open", "")] == 1
    assert found[("headgate_routing_absent_total", "")] == 4
    assert found[("headgate_dead_letters_total", "")] == 5
    assert found[("headgate_routing_epoch", "")] == 1

    lines = text.splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "each metric is there once"
    assert "_total_total" not in text
    values = [line for line in lines if not line.startswith("#")]
    assert len(values) == len({line.rpartition(" ")[0] for line in values})
    assert not [line for line in values if "stream=" in line or "topic=" in line or "orders" in line]
    names = {name for name, _ in found}
    assert all(name.startswith("headgate_") for name in names)


def test_past_the_threshold_pages_and_metrics_say_degraded(busy: Shop) -> None:
    supervisor = busy.supervisor("p")
    reporter = supervisor.reporter
    reporter.status(Status.RUNNING)
    for client in serving(busy):
        for count in range(1, 17):
            reporter.failed(DeliveryError("no", remedy="wait"))
            status = client.get("/pipelines/p").json()
            expected = "degraded" if count == 16 else "running"
            assert (status["status"], status["failures_in_row"]) == (expected, count)
            assert samples(client.get("/metrics").text)[("headgate_pipeline_status", "status=degraded")] == (
                count == 16
            )
        assert client.get("/ready").status_code == 503
        assert status["error"]["remedy"] == "wait"
        assert [change["status"] for change in status["history"]] == ["running", "degraded"]
        reporter.batch(rows=1, payload_bytes=1, duplicates=0, seconds=0.1)
        assert client.get("/pipelines/p").json()["status"] == "running"
        assert samples(client.get("/metrics").text)[("headgate_pipeline_status", "status=degraded")] == 0
        assert samples(client.get("/metrics").text)[("headgate_failures_in_row", "")] == 0


def test_destinations_are_listed_with_their_topics(busy: Shop) -> None:
    for client in serving(busy):
        shown = client.get("/connectors/p/destinations").json()["destinations"]
        orders, payments = shown
        assert (orders["stream"], orders["topic"], orders["circuit"]) == ("shop", "orders", "open")
        assert (orders["failures_total"], orders["error"]["message"]) == (5, "no")
        assert 0 < orders["retry_in_seconds"] <= 30
        assert (payments["circuit"], payments["error"], payments["partitions"]) == ("closed", None, 1)
        everything = client.get("/destinations").json()["destinations"]
        assert {each["pipeline"] for each in everything} == {"p", "plain"}


_ALL = {"abandon-batch": {"all": True}}


def test_what_is_not_understood_is_not_done(busy: Shop) -> None:
    """A misspelt key once purged everything."""
    letters = busy.supervisor("p").spec.dead_letters
    assert letters is not None
    letters.purge(Selection(all=True))
    letters.add([DeadLetter(f"o-{n}", "", Address("", "t"), "cap", str(n), b"x") for n in range(3)])
    kept = [letter.number for letter in letters.list()]
    base = "/pipelines/p/dead-letters"
    wrong: list[tuple[str, Any, str]] = [
        *((f"{base}/{verb}", body, hint) for verb in ("purge", "replay") for body, hint in _NOTHING_CHOSEN),
        (f"{base}/replay", {"all": True, "to": {"topic": "t", "straem": "s"}}, "did you mean stream?"),
        (f"{base}/replay", {"all": True, "to": None}, "to is an object"),
        ("/pipelines/p/abandon-batch", None, "which batch?"),
        ("/pipelines/p/abandon-batch", {"batch": 1}, "did you mean batch_id?"),
        ("/pipelines/p/abandon-batch", {"batch_id": "1"}, "batch_id is a number"),
        ("/pipelines/p/abandon-batch", {"batch_id": 1, "all": True}, "which batch?"),
        ("/pipelines/p/stop", {"when": "later"}, "known: none"),
        ("/reload", {"pipeline": "p"}, "known: none"),
        ("/shutdown", {"pipeline": "p"}, "known: none"),
        ("/pipelines/p/explain", {"rows": [], "row": {}}, "did you mean rows?"),
        ("/snapshots", {"tabel": "users"}, "did you mean table?"),
    ]
    for client in serving(busy):
        for path, body, hint in wrong:
            answer = client.post(path, json=body) if body is not None else client.post(path)
            assert (answer.status_code, hint in answer.text) == (400, True), (path, body, answer.text)
        assert client.get(f"{base}?resaon=cap").status_code == 400
        assert [letter.number for letter in letters.list()] == kept
        assert client.post(f"{base}/purge", json={"numbers": kept[:1]}).json() == {"purged": 1}
        assert client.post(f"{base}/purge", json={"all": True}).json() == {"purged": 2}


_NOTHING_CHOSEN: list[tuple[Any, str]] = [
    (None, "which dead letters?"),
    ({}, "which dead letters?"),
    ({"resaon": "cap"}, "did you mean reason?"),
    ({"reason": None}, "reason is a text"),
    ({"reason": ""}, "reason is a text"),
    ({"numbers": []}, "numbers is empty"),
    ({"numbers": [True]}, "numbers is a list of numbers"),
    ({"numbers": [1], "reason": "cap"}, "which dead letters?"),
    ({"all": False}, "all is true"),
    ({"all": 1}, "all is true"),
    ({"all": True, "reason": "cap"}, "which dead letters?"),
]


def test_a_pipeline_is_known_by_its_source_and_what_is_not_there_is_named(client: httpx.Client) -> None:
    assert client.get("/sources/clicks").json()["pipeline"] in ("p", "plain")
    assert client.get("/connectors/p").json() == client.get("/pipelines/p").json()
    assert client.get("/sources").json() == client.get("/connectors").json() == client.get("/pipelines").json()
    answer = client.get("/pipelines/nobody")
    assert (answer.status_code, answer.json()["remedy"]) == (404, "pipelines that run: p, plain")
    for rest in ("pause", "resume", "restart", "stop", "abandon-batch"):
        assert client.post(f"/pipelines/nobody/{rest}", json=_ALL.get(rest)).status_code == 404
        assert client.get(f"/pipelines/p/{rest}").status_code == 405
    idle = client.post("/pipelines/p/abandon-batch", json=_ALL["abandon-batch"])
    assert (idle.status_code, idle.json()["title"]) == (409, "no batch of p is failing")


def test_a_reload_says_what_it_does_not_apply(tmp_path: Path) -> None:
    path = tmp_path / "headgate.toml"
    path.write_text(ROUTED)
    shop = Shop(path)
    routing = shop.supervisor("p").routing
    assert routing is not None
    routing.start()
    for client in serving(shop):
        path.write_text(
            ROUTED.replace('default_topic = "rest"', 'default_topic = "other"').replace('topic = "t"', 'topic = "u"')
        )
        assert client.post("/reload").json() == {"epochs": {"p": 2}, "needs_restart": ["pipelines.plain"]}
        assert (routing.settings.rules.default_topic, routing.settings.rules.epoch) == ("other", 2)
        for wrong, match in (
            (ROUTED.replace('topic_column = "kind"', 'topic_column = "note"'), "have changed"),
            (ROUTED.replace("default_topic", "defalt_topic"), "defalt_topic"),
            ("[", ""),
        ):
            path.write_text(wrong)
            answer = client.post("/reload")
            assert answer.status_code == 422
            assert match in answer.text
            assert routing.epoch == 2
