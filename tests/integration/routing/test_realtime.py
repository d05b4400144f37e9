"""Pipelines that follow their source: rows come through one batch that goes on, and orders reach it at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.config.models import PipelineSection
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints
from headgate.model import ConfigError, DeliveryError, Status
from headgate.pipeline.routing.settings import routing_settings
from headgate.pipeline.state import StateFile
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.base import CDC, Offset
from tests.integration.routing.test_routed_cdc import (  # noqa: F401 - fixtures
    Admin,
    Start,
    admin,
    name,
    start,
    wait_for_slot,
)
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

_SOON_S = 20.0  # on a busy machine; a batch that brought rows would go on for 30


def nats(name: str, **more: Any) -> dict[str, Any]:  # noqa: F811
    return {"type": "nats", "stream": name, "subjects": ["cdc." + name + ".>", f"{name}.>"], **more}


def insert(admin: Admin, *ids: int, kind: str = "a") -> None:  # noqa: F811
    for number in ids:
        admin.execute("INSERT INTO events VALUES (%s, %s, 't', '{}', NULL)", (number, kind))


def ids(endpoints: Endpoints, stream: str, expected: int) -> list[int]:
    events = [msgspec.msgpack.decode(m.data) for m in read_stream(endpoints.nats_url, stream, expected)]
    return [event["data"]["id"] for event in events if event["operation"] != "SCHEMA"]


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def followed(supervisor: Supervisor, admin: Admin, name: str) -> int:  # noqa: F811
    """Wait until the pipeline follows, its table is known, and so many rows were delivered."""
    wait_for_slot(admin, name)
    insert(admin, 1)
    assert supervisor.reporter.wait_for_rows(1, timeout_s=90)
    insert(admin, 2)
    assert supervisor.reporter.wait_for_rows(2, timeout_s=60)
    return supervisor.report.batches_total


def test_rows_are_delivered_recorded_and_confirmed_while_one_batch_goes_on(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    supervisor = start(destination=nats(name))
    batches = followed(supervisor, admin, name)
    insert(admin, *range(3, 13))
    assert supervisor.reporter.wait_for_rows(12, timeout_s=60)
    assert supervisor.report.batches_total == batches
    state = StateFile(supervisor.spec.state_path).read()
    assert state is not None
    assert state.end is not None
    end_lsn = state.end["lsn"]
    wait_until(
        lambda: bool(
            admin.execute(
                "SELECT confirmed_flush_lsn >= '0/0'::pg_lsn + %s::numeric FROM pg_replication_slots"
                " WHERE slot_name = %s",
                (end_lsn, name),
            ).fetchall()[0][0]
        )
    )
    wait_until(lambda: supervisor.report.lag_rows == 0)
    assert ids(endpoints, name, 12)[-12:] == list(range(1, 13))


def test_a_stop_does_not_wait_and_a_restart_repeats_nothing(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    supervisor = start(destination=nats(name))
    followed(supervisor, admin, name)
    began = time.monotonic()
    supervisor.stop()
    assert supervisor.join(60)
    assert time.monotonic() - began < _SOON_S
    insert(admin, 3, 4)
    again = start(destination=nats(name))
    assert again.reporter.wait_for_rows(2, timeout_s=90)
    insert(admin, 5)
    assert again.reporter.wait_for_rows(3, timeout_s=60)
    assert again.report.duplicates_total == 0
    assert ids(endpoints, name, 5)[-5:] == [1, 2, 3, 4, 5]


def test_a_pause_holds_and_a_resume_goes_on(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    supervisor = start(destination=nats(name))
    followed(supervisor, admin, name)
    began = time.monotonic()
    supervisor.pause()
    assert supervisor.reporter.wait_for(Status.PAUSED, timeout_s=60)
    assert time.monotonic() - began < _SOON_S
    insert(admin, 3)
    supervisor.resume()
    assert supervisor.reporter.wait_for_rows(3, timeout_s=90)
    assert ids(endpoints, name, 3)[-3:] == [1, 2, 3]


def test_new_destinations_new_routes_and_refused_rows(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    """What only the driver can do ends following; the next batch has it done."""
    admission = {"mode": "denylist", "denylist": [{"topic": "forbidden"}], "on_admission_failure": "dlq"}
    supervisor = start(destination=nats(f"{name}-own"), **_routed(name, admission, a="a"))
    followed(supervisor, admin, name)
    insert(admin, 3, kind="b")  # nobody has seen this topic
    assert supervisor.reporter.wait_for_rows(3, timeout_s=60)
    insert(admin, 4, kind="forbidden")
    wait_until(lambda: supervisor.report.routing["dead_letters_total"] == 1)
    insert(admin, 5)
    assert supervisor.reporter.wait_for_rows(5, timeout_s=60)
    moved = _routed(name, admission, a="moved")
    section = PipelineSection.model_validate({"source": "changes", "destinations": ["out"], **moved})
    assert supervisor.routing is not None
    supervisor.routing.reload(routing_settings(section, CDC, where="pipelines.p"))
    began = time.monotonic()
    supervisor.halt_following()
    insert(admin, 6)
    assert supervisor.reporter.wait_for_rows(6, timeout_s=60)
    assert time.monotonic() - began < _SOON_S
    subjects = [m.subject for m in read_stream(endpoints.nats_url, name, 5)]
    assert subjects[-5:] == [f"{name}.{topic}" for topic in ("a", "a", "b", "a", "moved")]


def _routed(stream: str, admission: dict[str, Any], **mapping: str) -> dict[str, Any]:
    topics = {"b": "b", "forbidden": "forbidden", **mapping}
    route = {"type": "route", "field": "kind", "stream": stream, "default_topic": "other", "mapping": topics}
    return {"transforms": [route], "routing": {"admission": admission}}


def test_a_destination_that_is_full_loses_nothing(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    supervisor = start(destination=nats(name), failure_threshold=2)
    followed(supervisor, admin, name)
    options = NatsOptions(url=endpoints.nats_url or "", stream=name, subjects=(f"cdc.{name}.>", f"{name}.>"))
    with JetStream.open(options) as jetstream:
        info = jetstream.stream_info(name)
        assert info is not None
        config = {**info.config, "max_msgs": info.messages, "discard": "new"}
        jetstream.update_stream(config)
        insert(admin, 3, 4)
        assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=90)
        jetstream.update_stream({**config, "max_msgs": -1})
    assert supervisor.reporter.wait_for(Status.RUNNING, timeout_s=90)
    insert(admin, 5)
    assert supervisor.reporter.wait_for_rows(5, timeout_s=60)
    assert ids(endpoints, name, 5)[-5:] == [1, 2, 3, 4, 5]


def test_a_commit_that_fails_degrades_until_it_is_made_up_for(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    endpoints: Endpoints,
) -> None:
    failing: list[bool] = []

    def break_commit(spec: Any) -> None:
        commit = spec.source.commit

        def broken(end: Offset) -> None:
            if failing:
                raise DeliveryError("the slot cannot be advanced", remedy="wait")
            commit(end)

        spec.source.commit = broken

    supervisor = start(destination=nats(name), failure_threshold=3, before=break_commit)
    followed(supervisor, admin, name)
    failing.append(True)
    insert(admin, 3)
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    error = supervisor.report.error
    assert error is not None
    assert error["message"] == "the slot cannot be advanced"
    failing.clear()
    assert supervisor.reporter.wait_for(Status.RUNNING, timeout_s=60)
    assert supervisor.report.error is None
    states = [change.status for change in supervisor.report.history]
    assert states.count(Status.DEGRADED) == 1, "it recovers by a success alone"
    assert ids(endpoints, name, 3)[-3:] == [1, 2, 3]


def test_it_is_refused_where_it_cannot_be(start: Start) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match='trigger = "realtime" is not possible here'):
        start(trigger="realtime")  # memory takes whole batches


def test_rows_are_not_shared_out_where_a_replay_would_not_be_known(start: Start) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match=r'ordering = "key" is not possible here: .* can tell a replay only by'):
        start(destination={"type": "eventlog", "path": "/tmp/never-made"}, ordering="key")
