"""A bridge that dies while it makes a snapshot: its successor makes the snapshot, and nothing of the first is left."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import Any

import msgspec
import psycopg

from headgate.destinations.nats import JetStream, NatsOptions
from tests.streams import read_stream

from .test_bridge import Bridge, admin, bridge, stack, wait_until

__all__ = ["admin", "bridge", "stack"]  # its fixtures are used here, too

ROWS = 30_000
PLACES = ("snapshot.begun", "snapshot.sent", "snapshot.ended")


def control(bridge: Bridge) -> str | None:
    path = bridge.project.directory / f".headgate/bridge-{bridge.slot}/run/control.json"
    try:
        url: str = json.loads(path.read_text())["url"]
    except (OSError, ValueError):
        return None
    return url


def call(bridge: Bridge, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """An answer of the control plane, or None while there is none."""
    url = control(bridge)
    if url is None:
        return None
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode() if body else None)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except OSError:
        return None


def ask(bridge: Bridge) -> str:
    """Ask until the bridge knows its tables."""
    answers: list[dict[str, Any] | None] = [None]

    def accepted() -> bool:
        answers.append(call(bridge, "/snapshots", {"table": bridge.slot, "chunk_rows": 100}))
        return answers[-1] is not None

    wait_until(accepted)
    assert answers[-1] is not None
    snapshot_id: str = answers[-1]["snapshot_id"]
    return snapshot_id


def test_a_crash_while_a_snapshot_is_made(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    """One bridge after the other dies in another place of the same snapshot; the last one makes it."""
    admin.execute(f"insert into {bridge.slot} select g, 'n', g from generate_series(1, {ROWS}) g".encode())
    process = bridge.start(HEADGATE_FAILPOINT=PLACES[0])
    first = ask(bridge)
    assert process.wait(120) == -signal.SIGKILL
    process.communicate()
    for place in PLACES[1:]:
        process = bridge.start(HEADGATE_FAILPOINT=place)
        assert process.wait(120) == -signal.SIGKILL
        process.communicate()
    (bridge.project.directory / f".headgate/bridge-{bridge.slot}/run/control.json").unlink(missing_ok=True)

    process = bridge.start()
    wait_until(lambda: is_done(bridge, first))
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors

    stream, prefix = f"INIT_{bridge.slot}", f"init_{bridge.slot}"
    with JetStream.open(NatsOptions(url=bridge.nats_url, stream=stream, subjects=("x",))) as jetstream:
        last = jetstream.last_message(stream, f"{prefix}.meta.{bridge.slot}")
    assert last is not None
    end = msgspec.msgpack.decode(last.payload)
    assert (end["operation"], end["row_count"]) == ("snapshot_end", ROWS)
    assert (end["replaces"][0], len(end["replaces"])) == (first, len(PLACES))
    stored = read_stream(bridge.nats_url, stream, 0)
    messages = [each for each in stored if each.subject.startswith(f"{prefix}.snap.{bridge.slot}.")]
    assert {message.subject.split(".")[3] for message in messages} == {end["snapshot_id"]}
    rows = [row["id"] for message in messages for row in msgspec.msgpack.decode(message.data)["data"]]
    assert sorted(rows) == list(range(1, ROWS + 1))


def test_nats_dies_while_a_snapshot_is_made(bridge: Bridge, admin: psycopg.Connection[Any]) -> None:
    rows = 400_000
    admin.execute(f"insert into {bridge.slot} select g, 'n', g from generate_series(1, {rows}) g".encode())
    process = bridge.start()
    asked = ask(bridge)
    wait_until(lambda: any(job["rows"] for job in jobs(bridge)))
    assert bridge.stack.nats is not None
    bridge.stack.nats.kill()
    bridge.stack.nats.start()
    wait_until(lambda: any(job["state"] == "done" for job in jobs(bridge)))
    (job,) = jobs(bridge)
    process.terminate()
    process.communicate(timeout=60)
    assert (job["rows"], job["id"] == asked or asked in job["replaces"]) == (rows, True)
    messages = read_stream(bridge.nats_url, f"INIT_{bridge.slot}", 0)
    subject = f"init_{bridge.slot}.snap.{bridge.slot}.{job['id']}."
    chunks = [message for message in messages if message.subject.startswith(subject)]
    found = [row["id"] for chunk in chunks for row in msgspec.msgpack.decode(chunk.data)["data"]]
    assert sorted(found) == list(range(1, rows + 1))


def jobs(bridge: Bridge) -> list[dict[str, Any]]:
    answer = call(bridge, "/snapshots")
    return answer["snapshots"] if answer else []


def is_done(bridge: Bridge, first: str) -> bool:
    return any(first in job["replaces"] and job["state"] == "done" for job in jobs(bridge))
