"""What `run` and `bridge` say of databases and NATS before Spark is started: everything at once, or nothing."""

from __future__ import annotations

import logging
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.bridge import bridge_settings
from headgate.config import Config
from headgate.control.checks.before import look_before
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints
from headgate.model import AuthError, StateError
from headgate.pipeline.assemble import assemble

AWAY = "postgres://somebody:hunter2@127.0.0.1:1/shop"


def look(tmp_path: Path, postgres: str, nats: str, **source: Any) -> None:
    name = f"l{uuid.uuid4().hex[:8]}"
    settings = bridge_settings(name, name, postgres, nats, stream=name, subject=f"{name}.{{table}}", data_dir=tmp_path)
    settings["sources"]["changes"] |= source
    config = Config.model_validate(settings)
    endpoints = Endpoints(data_dir=tmp_path, owner_pid=0)
    look_before(config, endpoints, assemble(config, nats_url=nats, postgres_url=postgres))


def test_everything_is_told_at_once(endpoints: Endpoints, tmp_path: Path) -> None:
    assert endpoints.postgres_url is not None
    assert endpoints.nats_url is not None
    name = f"l{uuid.uuid4().hex[:8]}"
    taken = NatsOptions(url=endpoints.nats_url, stream=f"{name}_other", subjects=(f"{name}.>",))
    with JetStream.open(taken) as jetstream:
        jetstream.ensure_stream(taken)
    settings = bridge_settings(
        name,
        name,
        endpoints.postgres_url,
        endpoints.nats_url,
        stream=name,
        subject=f"{name}.{{table}}",
        data_dir=tmp_path,
    )
    config = Config.model_validate(settings)
    specs = assemble(config, nats_url=endpoints.nats_url, postgres_url=endpoints.postgres_url)
    with pytest.raises(StateError) as caught:
        look_before(config, endpoints, specs)
    text = str(caught.value)
    assert f"publication {name}: there is none of this name" in text
    assert f"CREATE PUBLICATION {name}" in text.replace('"', "")
    assert f"stream {name}: {name}_other takes {name}.> already" in text
    with JetStream.open(taken) as jetstream:
        jetstream.delete_stream(taken.stream)
    specs[0].state_path.parent.mkdir(parents=True)
    specs[0].state_path.write_text("{}")
    look_before(config, endpoints, specs)  # a pipeline that has run waits for its publication


def test_servers_that_are_away_are_named_and_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        look(tmp_path, AWAY, "nats://127.0.0.1:1")
    assert time.monotonic() - began < 30
    told = " ".join(str(vars(record).get("found")) for record in caplog.records)
    assert "postgres 127.0.0.1:1" in told
    assert "nats 127.0.0.1:1" in told
    assert "hunter2" not in told


def test_a_wrong_password_is_final_and_what_else_is_wrong_stands_beside_it(
    endpoints: Endpoints, tmp_path: Path
) -> None:
    assert endpoints.postgres_tcp_url is not None
    url = endpoints.postgres_tcp_url.split("?")[0].replace("headgate@", "headgate:hunter2@")
    with pytest.raises(AuthError) as caught:
        look(tmp_path, url, "nats://127.0.0.1:1")
    text = str(caught.value)
    assert "password authentication failed" in text
    assert "nats 127.0.0.1:1" in text
    assert "hunter2" not in text
