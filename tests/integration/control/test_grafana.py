"""The dashboard for Grafana and the alert rules, against the metrics that are exported and against Prometheus' tool."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from typer.testing import CliRunner

from headgate import __version__
from headgate.cli.grafana import grafana
from headgate.control.grafana import ALERTS, PANELS
from headgate.control.metrics import BROKER_KEYS, GATEWAY_KEYS, REGISTRY_KEYS, collectors, render
from headgate.gateway.metrics import Metrics
from headgate.model import metric_names
from headgate.pipeline.acks import Acks
from headgate.pipeline.report import Reporter
from headgate.relay.metrics import families
from headgate.relay.service import RelaySettings, open_relay
from headgate.runtime.timings import Timings

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)
GATEWAY = dict.fromkeys(GATEWAY_KEYS, 0) | Metrics().as_dict() | {"fetch_timings": Timings().as_dict()}
BROKER = dict.fromkeys(BROKER_KEYS, 0) | {"up": 1, "dispatch_timings": Timings().as_dict()}

REGISTRY = dict.fromkeys(REGISTRY_KEYS, 0) | {"up": 1}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    result = CliRunner().invoke(grafana, ["export", "--directory", str(tmp_path / "made")])
    assert result.exit_code == 0, result.output
    return tmp_path / "made"


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a relay tells that follows nobody."""

    async def told() -> dict[str, Any]:
        settings = RelaySettings(tmp_path_factory.mktemp("relay"), port=0)
        async with open_relay(settings) as relay:
            return {
                "up": 1,
                "restarts_total": 0,
                "families": families(relay.parts, relay.front.listeners(), {"active": 0}),
            }

    return asyncio.run(told())


def _families(relay: dict[str, Any]) -> list[Metric]:
    return [family for each in collectors([], [], GATEWAY, BROKER, relay, REGISTRY) for family in each.collect()]


def _samples(family: Metric) -> set[str]:
    if family.type == "histogram":
        return {f"{family.name}_bucket", f"{family.name}_sum", f"{family.name}_count"}
    return {f"{family.name}_total" if family.type == "counter" else family.name}


def test_every_query_asks_for_metrics_that_exist(relay: dict[str, Any]) -> None:
    known = {name for family in _families(relay) for name in _samples(family)}
    queries = [query for row in PANELS.values() for panel in row for query, _ in panel.queries]
    for query in [*queries, *(alert.expression for alert in ALERTS)]:
        asked = set(re.findall(r"headgate_\w+", query))
        assert asked, query
        assert asked <= known, query


def test_every_name_is_declared_once_and_used(relay: dict[str, Any]) -> None:
    declared = [value for key, value in vars(metric_names).items() if key.isupper() and not key.endswith("_LABEL")]
    assert len(set(declared)) == len(declared)
    exported = {family.name for family in _families(relay)}
    exported |= {name for name in declared if name.startswith("headgate_relay_host_")}  # on the relay's own page alone
    assert set(declared) <= exported


def test_the_dashboard_is_what_grafana_reads(exported: Path) -> None:
    made = json.loads((exported / "headgate-dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in made["panels"]}) == len(places)
    assert {panel["type"] for panel in made["panels"]} == {"row", "timeseries"}


@needs_promtool
def test_prometheus_accepts_the_rules(exported: Path) -> None:
    command = ["promtool", "check", "rules", str(exported / "headgate-alerts.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@needs_promtool
def test_prometheus_has_nothing_against_the_metrics(relay: dict[str, Any]) -> None:
    reporter = Reporter("orders", "random", ("events",))
    for seconds in (0.07, 3.0, 1e4):
        reporter.batch(rows=1, payload_bytes=1, duplicates=0, seconds=seconds)
    for phase, seconds in (("send", 0.2), ("record", 0.01), ("commit", 400.0)):
        reporter.phase(phase, seconds)
    acks = Acks()
    acks.observe(100.0, 100.2)
    acks.observe(100.0, 99.0)  # the clocks disagree
    reporter.acknowledged(acks)
    page = render([reporter.report], (), GATEWAY, BROKER, relay, REGISTRY)
    assert f'headgate_build_info{{version="{__version__}"}} 1.0' in page.decode()
    for limit, count in (("0.05", 0), ("0.1", 1), ("5.0", 2), ("+Inf", 3)):
        assert f'headgate_batch_duration_seconds_bucket{{le="{limit}",pipeline="orders"}} {count}.0' in page.decode()
    for phase, limit, count in (
        ("send", "0.1", 0),
        ("send", "0.25", 1),
        ("record", "0.025", 1),
        ("commit", "300.0", 0),
    ):
        labels = f'le="{limit}",phase="{phase}",pipeline="orders"'
        assert f"headgate_batch_phase_seconds_bucket{{{labels}}} {count}.0" in page.decode()
    for limit, count in (("0.001", 1), ("0.1", 1), ("0.25", 2)):
        assert f'headgate_commit_to_ack_seconds_bucket{{le="{limit}",pipeline="orders"}} {count}.0' in page.decode()
    assert 'headgate_commit_to_ack_seconds_sum{pipeline="orders"} 0.2' in page.decode()
    assert "headgate_relay_validation_seconds_count 0.0" in page.decode()
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
