"""The example with fifty event types, as a user runs it: crashes, explanations, dead letters, a reload."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints, Stack
from tests.acceptance.conftest import HEADGATE, Project
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "fifty-events"
STREAMS = ("orders", "payments", "shipping", "catalog", "accounts")


@pytest.fixture
def stack(project: Project) -> Iterator[Endpoints]:
    """The servers of the project, so that they outlive the crashes."""
    for name in ("headgate.toml", "events.sql"):
        shutil.copy(EXAMPLE / name, project.directory)
    text = (project.directory / "headgate.toml").read_text()
    project.write(text.replace("[sources.changes]", "[control]\nport = 0\n\n[sources.changes]"))
    with Stack(project.directory / ".headgate", durable=False) as endpoints:
        assert endpoints.postgres_url is not None
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            admin.execute((project.directory / "events.sql").read_bytes())
        yield endpoints


def start(project: Project, **environ: str) -> subprocess.Popen[str]:
    with (project.directory / "errors.txt").open("a") as errors:
        return subprocess.Popen(
            [HEADGATE, "run"],
            cwd=project.directory,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )


def wait_until(condition: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


def pipeline(project: Project) -> dict[str, Any]:
    answer = project.status()
    return answer["pipelines"][0] if answer and answer["pipelines"] else {}


def explained(project: Project, *arguments: str) -> list[dict[str, Any]]:
    done = project.run("explain", "events", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def test_fifty_event_types_through_one_slot(project: Project, stack: Endpoints) -> None:
    assert stack.postgres_url is not None
    assert stack.nats_url is not None
    admin = psycopg.connect(stack.postgres_url, autocommit=True)

    # What would happen is told before anything runs.
    before = explained(project, "--row", '{"event_type": "order.created"}')[0]["verdicts"][0]
    assert (before["destination"], before["admission"]) == ("orders/order.created", "admitted")
    assert before["creates"] == ["bus: stream orders with the subjects orders.>"]

    kinds = [line.split('"')[1] for line in (EXAMPLE / "headgate.toml").read_text().splitlines() if line[:1] == '"']
    assert len(kinds) == 50
    process = start(project, HEADGATE_FAILPOINT="pipeline.sent")
    wait_until(lambda: bool(admin.execute("SELECT 1 FROM pg_replication_slots").fetchone()))
    for number in range(3):
        rows = [(kind, json.dumps({"n": number})) for kind in kinds]
        with admin.transaction(), admin.cursor() as cursor:
            cursor.executemany("INSERT INTO events (event_type, body) VALUES (%s, %s)", rows)
    admin.execute("INSERT INTO events (event_type) VALUES ('nobody.knows')")
    assert process.wait(120) != 0  # it died between the acknowledgements and the record
    process = start(project, HEADGATE_FAILPOINT="pipeline.persisted")
    assert process.wait(120) != 0  # and now between the record and the commit
    process = start(project)
    wait_until(lambda: pipeline(project).get("status") == "running")
    admin.execute("INSERT INTO events (event_type, body) VALUES ('order.created', '{\"n\": 3}')")
    expected = Counter(dict.fromkeys(kinds, 3)) + Counter({"order.refunded": 3, "order.created": 1})
    with JetStream.open(NatsOptions(url=stack.nats_url, stream="X", subjects=("x",))) as jetstream:
        wait_until(lambda: _stored(jetstream) >= expected.total())
        found: Counter[str] = Counter()
        for stream in STREAMS:
            messages = read_stream(stack.nats_url, stream, 0)
            inserts = [m for m in messages if json.loads(m.data)["operation"] == "INSERT"]
            found.update(message.subject.removeprefix(f"{stream}.") for message in inserts)
        assert found == expected  # nothing lost, nothing twice

        # A dead letter is seen, and after a reload with a route for it sent on.
        wait_until(lambda: bool(json.loads(project.run("dlq", "list", "events", "--json").stdout)["dead_letters"]))
        letters = json.loads(project.run("dlq", "list", "events", "--json").stdout)
        assert letters["counts"] == {"missing_destination": 1}
        shown = json.loads(
            project.run("dlq", "show", "events", str(letters["dead_letters"][0]["number"]), "--json").stdout
        )
        assert json.loads(shown["payload"])["data"]["event_type"] == "nobody.knows"
        text = (project.directory / "headgate.toml").read_text()
        project.write(text.replace("mode = ", "mod = "))
        assert project.run("reload").returncode != 0
        project.write(text + '"nobody.knows" = { stream = "accounts", topic = "new" }\n')
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: pipeline(project).get("routing", {}).get("epoch") == 2)
        done = project.run("dlq", "replay", "events", "--all", "--to", "accounts/new")
        assert done.returncode == 0, done.stderr
        admin.execute("INSERT INTO events (event_type) VALUES ('nobody.knows')")
        wait_until(lambda: _stored(jetstream) >= expected.total() + 2)
    last = read_stream(stack.nats_url, "accounts", 0)[-2:]
    assert [message.subject for message in last] == ["accounts.new", "accounts.new"]
    assert last[1].headers is not None
    assert last[1].headers["Headgate-Epoch"] == "2"
    assert json.loads(project.run("dlq", "list", "events", "--json").stdout)["dead_letters"] == []

    # The same explanation from a table and from the last events.
    assert [row["rule"] for row in explained(project, "--table", "public.events", "--limit", "1")] == [
        f"route event_type = {kinds[0]}"
    ]
    assert [row["rule"] for row in explained(project, "--last", "1")] == ["route event_type = nobody.knows"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    admin.close()


def _stored(jetstream: JetStream) -> int:
    """Inserts alone: every stream also gets a description of the table, if it routes anywhere."""
    infos = [jetstream.stream_info(stream) for stream in STREAMS]
    return sum(info.messages for info in infos if info)
