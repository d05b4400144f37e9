"""What the demo is made of, and its port for Kafka clients."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headgate.cli.demo import _config
from headgate.demo import log as demo_log
from headgate.demo.firehose import DemoNetwork
from headgate.destinations.log import LogDestination
from headgate.pipeline.assemble import assemble


def test_the_changes_go_to_nats_and_into_the_log(tmp_path: Path) -> None:
    config = _config(tmp_path)
    assert config.gateway.enabled
    specs = assemble(config, nats_url="nats://localhost:1", postgres_url="postgresql:///x", until_caught_up=False)
    shop = next(spec for spec in specs if spec.name == "shop")
    assert [destination.name for destination in shop.destinations] == ["changes", "log"]
    log = shop.destinations[1]
    assert isinstance(log, LogDestination)
    assert log.exclusive  # a restart of the demo writes nothing twice


def test_a_taken_port_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(demo_log, "_KAFKA_PORT", port)
        assert _config(tmp_path).gateway.port == 0
    assert _config(tmp_path).gateway.port == port


def test_the_network_is_followed_into_the_log(tmp_path: Path) -> None:
    with DemoNetwork() as network:
        config = _config(tmp_path, network.toml)
    assert config.relay.enabled
    assert len(config.relay.crawl) > 1
    specs = assemble(config, nats_url="nats://localhost:1", postgres_url="postgresql:///x", until_caught_up=False)
    followed = next(spec for spec in specs if spec.name == "network")
    assert [destination.name for destination in followed.destinations] == ["log"]
