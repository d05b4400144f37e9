"""A whole run with recognisable values and secrets, at debug and through failures: none is in what is written.

What is looked through: standard output and error, every file of logs, Spark's included, `/metrics`, `/status`, the
pages, and the doctor's report. Where rows belong (spool, dead letters, checkpoints) they are of course.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from confluent_kafka import Producer
from psycopg.conninfo import conninfo_to_dict

from headgate.broker import install
from headgate.embedded import Endpoints
from tests.acceptance.conftest import HEADGATE, Project
from tests.gateway.servers import new_database

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

WAIT_S = 180.0
CONFIG = """
[project]
data_dir = "data"

[logging]
level = "debug"
metrics_interval = "1s"

[control]
port = 0
token = "s3cret-token-of-control"

[spark]
driver_memory = "512m"

[postgres]
url = "{postgres}"

[nats]
url = "{nats}"

[gateway]
enabled = true
port = 0
users = {{ writer = "s3cret-kafka-password" }}

[broker]
enabled = true
port = 0

[relay]
enabled = true
port = 0
token = "s3cret-token-of-the-relay"
allow_private = true
plc_url = "http://127.0.0.1:9"

[sources.changes]
type = "postgres-cdc"
slot = "{slot}"
publication = "{slot}"

[sources.polled]
type = "postgres-poll"
table = "orders"
tracking_column = "id"

[sources.polled-again]
type = "postgres-poll"
table = "orders"
tracking_column = "id"

[sources.hooks]
type = "webhook"
port = 0
keys = {{ shop = "s3cret-webhook-key" }}

[sources.numbers]
type = "random"
rows_per_second = 0
rows = 10

[destinations.events]
type = "nats"
stream = "{stream}"
subjects = ["{stream}.>"]

[destinations.away]
type = "nats"
url = "nats://me:s3cret-nats-away@127.0.0.1:1"
stream = "AWAY"
subjects = ["away.>"]

[destinations.partner]
type = "webhook"
url = "http://127.0.0.1:1/s3cret-path-of-a-partner/{{topic}}"
headers = {{ Authorization = "Bearer s3cret-header-of-a-partner" }}

[pipelines.changes]
source = "changes"
destinations = ["events"]
[pipelines.changes.routing]
topic_column = "kind"
default_topic = "{stream}.changes"
[pipelines.changes.routing.admission]
mode = "allowlist"
allowlist = [{{ topic = "{stream}.good" }}, {{ topic = "{stream}.changes" }}]
on_admission_failure = "dlq"

[pipelines.cast]
source = "polled"
destinations = ["events"]
topic = "{stream}.cast"
[[pipelines.cast.transforms]]
type = "sql"
query = "select *, cast(note as int) as number from batch"

[pipelines.hooks]
source = "hooks"
destinations = ["events"]
topic = "{stream}.hooks"

[pipelines.away]
source = "numbers"
destinations = ["away"]
topic = "away.t"

[pipelines.partner]
source = "polled-again"
destinations = ["partner"]
topic = "t"
"""


@pytest.fixture
def database(endpoints: Endpoints) -> Iterator[str]:
    """An address with a password, which the server does not ask for."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as conninfo:
        known = conninfo_to_dict(conninfo)
        host, port = quote(str(known["host"]), safe=""), known["port"]
        yield f"postgresql://{known['user']}:s3cret-postgres@/{known['dbname']}?host={host}&port={port}"


@pytest.fixture
def slot(database: str, tmp_path: Path) -> Iterator[str]:
    name = f"leak_{tmp_path.name.rpartition('-')[2][-6:]}_{time.time_ns() % 10**6}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, kind text, note text)")
        connection.execute(f"create publication {name} for table orders".encode())
        connection.execute("create schema headgate")
        connection.execute("set search_path to headgate")
        install(connection)
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [name]
        )


class Running:
    """The service, and who asks it."""

    def __init__(self, project: Project, said: Path) -> None:
        self.project = project
        self._said = said.open("wb")
        command = [HEADGATE, "run"]
        self.process = subprocess.Popen(
            command, cwd=project.directory, stdout=self._said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        self.headers = {"authorization": "Bearer s3cret-token-of-control"}

    def get(self, path: str) -> httpx.Response:
        url = json.loads((self.project.directory / "data/run/control.json").read_text())["url"]
        return httpx.get(f"{url}{path}", headers=self.headers, timeout=60, trust_env=False)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.get("/status").json()
        return answer

    def pipeline(self, name: str) -> dict[str, Any]:
        return next((each for each in self.status()["pipelines"] if each["pipeline"] == name), {})

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            assert self.process.poll() is None, "headgate has ended"
            try:
                if holds():
                    return
            except (OSError, ValueError, KeyError, httpx.HTTPError):
                pass  # it has not started yet
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(90)
        self._said.close()


def test_no_row_value_and_no_secret_is_written(
    project: Project, endpoints: Endpoints, database: str, slot: str, tmp_path: Path
) -> None:
    nats = endpoints.nats_url.replace("nats://", "nats://me:s3cret-nats@") if endpoints.nats_url else ""
    project.write(CONFIG.format(postgres=database, nats=nats, slot=slot, stream=slot))
    said = tmp_path / "said.log"
    with closing(Running(project, said)) as running:
        running.until(lambda: running.status()["phase"] == "running")
        failures(running, database, slot)
        written = {path: running.get(path).text for path in ("/metrics", "/status", "/pipelines")}
        doctor = project.run("doctor", "--output", "report.txt", HEADGATE_TOKEN="s3cret-token-of-control")
        assert doctor.returncode == 0, doctor.stderr
        metrics_are_complete(written["/metrics"])
    written |= {"said": said.read_text(), "doctor": (project.directory / "report.txt").read_text()}
    logs = [path for path in (project.directory / "data").rglob("*.log*") if path.is_file()]
    assert any(path.name == "spark.log" for path in logs)
    written |= {str(path): path.read_text(errors="replace") for path in logs}
    levels_are_right(written["said"])
    found = [
        (name, leak.group(), text[max(0, leak.start() - 150) : leak.end() + 50])
        for name, text in written.items()
        for leak in re.finditer(r"(?:s3cret|rowvalue)-[\w-]+", text)
    ]
    assert "\n".join(map(str, found)) == ""


def failures(running: Running, database: str, slot: str) -> None:
    """Rows that arrive, rows that are refused, servers that are away, and clients with a wrong password."""
    with psycopg.connect(database, autocommit=True) as connection:
        ready = "select 1 from pg_replication_slots where slot_name = %s and confirmed_flush_lsn is not null"
        running.until(lambda: connection.execute(ready, [slot]).fetchone())
        kinds = [f"{slot}.good", f"{slot}.unwanted", None]
        for number in range(30):
            connection.execute(
                "insert into orders values (%s, %s, %s)", [number, kinds[number % 3], f"rowvalue-of-{number}"]
            )
        connection.execute("update orders set note = 'rowvalue-updated' where id = 0")
        connection.execute("select headgate.subscribe('odd', '(e.payload ->> ''v'')::int > 3')")
        connection.execute("select headgate.publish('t', '{\"v\": \"rowvalue-published\"}')")
        connection.execute("insert into kafka.topics (name) values ('of-sql') on conflict do nothing")
        running.until(lambda: running.pipeline("changes")["routing"]["dead_letters_total"] >= 10)
        running.until(lambda: running.pipeline("changes")["rows_total"] >= 20)
        connection.execute("insert into orders values (100, %s, 'rowvalue-of-100')", [f"{slot}.good"])
    running.until(lambda: _counted(running.get("/metrics").text, "headgate_commit_to_ack_seconds"))
    running.until(lambda: running.pipeline("cast")["status"] == "error")
    running.until(lambda: running.pipeline("away")["failures_in_row"] > 1)
    running.until(lambda: running.pipeline("partner")["failures_in_row"] > 1)
    url = running.pipeline("hooks")["source_details"]["url"]
    for key, status in (("s3cret-webhook-key", (200, 202)), ("s3cret-wrong-key", (401, 403))):
        answer = httpx.post(url, json={"v": "rowvalue-posted"}, headers={"x-api-key": key}, trust_env=False)
        assert answer.status_code in status
    running.until(lambda: running.pipeline("hooks")["rows_total"] == 1)
    servers = running.status()["gateway"]["advertised"]
    for password in ("s3cret-kafka-password", "s3cret-wrong-password"):
        producer = Producer({
            "bootstrap.servers": servers, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
            "sasl.username": "writer", "sasl.password": password, "message.timeout.ms": 5000, "log_level": 0,
            "error_cb": lambda error: None,
        })  # fmt: skip
        producer.produce("t", "rowvalue-produced", "rowvalue-key", headers={"h": "rowvalue-header"})
        producer.flush(30)
        producer.purge()
    assert running.get("/dashboard/gateway").status_code == 200
    running.headers = {"authorization": "Bearer s3cret-wrong-token"}
    assert running.get("/status").status_code == 401
    running.headers = {"authorization": "Bearer s3cret-token-of-control"}
    running.until(lambda: "headgate_gateway_append_seconds_count" in running.get("/metrics").text)
    running.until(lambda: "headgate_relay_validation_seconds_count" in running.get("/metrics").text)
    running.until(lambda: "headgate_broker_dispatch_seconds_count" in running.get("/metrics").text)


def _counted(page: str, histogram: str) -> float:
    return sum(float(each) for each in re.findall(rf"^{histogram}_count(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))


def metrics_are_complete(page: str) -> None:
    """One page has the histograms of all parts and processes, with what has really happened."""
    for name in (
        "headgate_commit_to_ack_seconds", "headgate_batch_phase_seconds", "headgate_gateway_append_seconds",
        "headgate_broker_dispatch_seconds", "headgate_spark_batch_part_seconds",
    ):  # fmt: skip
        assert _counted(page, name) > 0, name
    for name in ("headgate_gateway_fetch_seconds", "headgate_relay_validation_seconds"):  # nobody reads, or is followed
        assert f"# TYPE {name} histogram" in page
    assert re.search(r'^headgate_build_info\{version="[^"]+"\} 1.0$', page, re.MULTILINE)
    for server in ("gateway", "broker", "relay"):
        assert f"headgate_{server}_up 1.0" in page, server
    if promtool := shutil.which("promtool"):
        command = [promtool, "check", "metrics"]
        done = subprocess.run(command, input=page, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def levels_are_right(said: str) -> None:
    """One line a batch at debug, changes of state at info, remedies at error."""
    lines = [line for line in said.splitlines() if line.startswith("timestamp=")]
    by_event = {event: re.findall(rf"level=(\w+) event=\"?{event}", said) for event in ("batch delivered", "started")}
    assert set(by_event["batch delivered"]) == {"debug"}
    assert set(by_event["started"]) == {"info"}
    failed = [line for line in lines if "level=error" in line and 'event="pipeline failed"' in line]
    assert failed
    assert all("error_remedy=" in line for line in failed)
    states = [line for line in lines if 'event="pipeline state"' in line]
    assert all("level=info" in line for line in states)
    assert {"running", "error"} <= {match[1] for line in states if (match := re.search(r" status=(\w+)", line))}
