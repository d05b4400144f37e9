"""A relay beside the pipelines: configured in the file, in a process of its own, shown on the dashboard."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from headgate.cli.relay import relay
from headgate.config import Config
from headgate.control.dashboard.history import History
from headgate.control.dashboard.rendering import Renderer, View
from headgate.control.dashboard.views import PAGES
from headgate.control.relay import RelayProcess
from headgate.relay.configured import settings_from
from headgate.relay.options import RelayOptions
from headgate.relay.verdict import LENIENT, Mode

TEXT = """
[relay]
enabled = true
port = 0
token = "for-operators"
policy = "lenient"
retention = "1h"
allow_private = true
plc_url = "http://127.0.0.1:9"
trusted_domains = ["host.example"]
[relay.limits]
account_limit = 7
bytes = "1GiB"
dormant_retry = "10m"
first_backoff = "2s"
[relay.rules]
chain = "strict"
handle = "off"
"""


@contextmanager
def running(directory: Path) -> Iterator[RelayProcess]:
    config = Config.model_validate(tomllib.loads(TEXT))
    process = RelayProcess(settings_from(config.relay, directory))
    process.start()
    try:
        yield process
    finally:
        process.stop()


class Shown:
    """The part of the service that the panel looks at."""

    def __init__(self, relay: dict[str, Any] | None, metrics: dict[str, Any] | None = None) -> None:
        self._relay, self._metrics = relay, metrics

    def status(self) -> dict[str, Any]:
        return {"relay": self._relay}

    def relay_metrics(self) -> dict[str, Any] | None:
        return self._metrics


def page(relay: dict[str, Any] | None, metrics: dict[str, Any] | None = None) -> str:
    (found,) = [each for each in PAGES if each.name == "relay"]
    service: Any = lambda: Shown(relay, metrics)  # noqa: E731
    return Renderer(service, History(service)).parts(View(found, (), may_act=False))["relay"]


def test_the_table_says_how_the_relay_is(tmp_path: Path) -> None:
    settings = settings_from(Config.model_validate(tomllib.loads(TEXT)).relay, tmp_path)
    assert settings.options.policy == replace(LENIENT, chain=Mode.STRICT, handle=Mode.OFF)
    assert (settings.options.account_limit, settings.options.hold.bytes) == (7, 1 << 30)
    assert (settings.options.dormant_retry_s, settings.options.backoff_s) == (600.0, (2.0, 300.0))
    plain = settings_from(Config().relay, tmp_path)
    assert plain.options == RelayOptions()  # the file's defaults are those of the code
    assert settings.log.max_age_s == 3600
    assert settings.options.trusted_domains == ("host.example",)
    assert settings.data_dir == tmp_path
    assert "for-operators" not in repr(settings)


def test_it_runs_in_a_process_of_its_own_and_is_shown(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        status = process.status()
        assert status["status"] == "running"
        assert httpx.get(f"{status['url']}/xrpc/_health", trust_env=False).status_code == 200
        headers = {"Authorization": "Bearer for-operators"}
        assert httpx.get(f"{status['url']}/admin/counters", headers=headers, trust_env=False).status_code == 200
        shown = CliRunner().invoke(relay, ["status", "--url", status["url"], "--token", "for-operators"])
        told = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
        assert (told["settings.account_limit"], told["settings.policy.chain"]) == ("7", "strict")
        refused = CliRunner().invoke(relay, ["status", "--url", status["url"]])
        assert "Authorization: Bearer TOKEN" in str(refused.exception)
        tick = threading.Event()
        while "received" not in process.metrics():  # told every second
            tick.wait(0.05)
        assert "overview" not in process.status()["counters"]  # addresses of consumers are for the page alone
        panel = page(process.status(), process.metrics())
        assert status["url"] in panel
        assert "There is no host yet" in panel
        assert "Nobody listens" in panel
        assert "0.00 %" in panel
    assert process.status()["status"] == "stopped"


@pytest.mark.parametrize("relay", [None, "starting", "full"])
def test_the_panel_shows_what_there_is(relay: str | None) -> None:
    status = None if relay is None else {"status": "running", "url": "http://x", "connections": 0, "counters": {}}
    if relay == "full":
        assert status is not None
        status["counters"] = {
            "received": 5,
            "accepted": 3,
            "held": 0,
            "seq": 3,
            "unverified_fraction": 0.0,
            "hosts": {"active": 2},
            "dropped": {"<b>inversion": 2},
        }
    shown = page(status)
    assert ("The relay is off" in shown) == (relay is None)
    assert ("&lt;b&gt;inversion" in shown) == (relay == "full")
