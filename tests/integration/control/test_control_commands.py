"""Commands for a headgate that is known by its address alone: no file is needed, and none is looked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.model import AuthError, ConnectError
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
from tests.integration.control.conftest import ROUTED, Shop, serving

TOKEN = "a-token-of-a-test"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Shop, httpx.Client]]:
    (tmp_path / "headgate.toml").write_text(ROUTED)
    shop = Shop(tmp_path / "headgate.toml")
    for client in serving(shop, TOKEN):
        yield shop, client


def run(*command: str, token: str = TOKEN) -> Result:
    return CliRunner().invoke(app, command, env={"HEADGATE_TOKEN": token})


def test_commands_by_address(
    guarded: tuple[Shop, httpx.Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, client = guarded
    url = str(client.base_url)
    monkeypatch.chdir(tmp_path.parent)
    letters = shop.supervisor("p").spec.dead_letters
    assert letters is not None
    letters.add([DeadLetter(f"o-{n}", "", Address("", "t"), "cap", str(n), b"x") for n in range(3)])
    shown = run("status", "--json", "--url", url)
    assert [each["pipeline"] for each in json.loads(shown.stdout)["pipelines"]] == ["p", "plain"]
    assert "p" in run("pipeline", "show", "p", "--url", url).stdout
    of_one = json.loads(run("dlq", "list", "p", "--json", "--url", url).stdout)
    assert of_one["counts"] == {"cap": 3}
    of_all = json.loads(run("dlq", "list", "--json", "--url", url).stdout)
    assert of_all["p"] == of_one
    assert of_all["plain"]["dead_letters"] == []
    number = of_one["dead_letters"][0]["number"]
    assert json.loads(run("dlq", "show", "p", str(number), "--json", "--url", url).stdout)["reason"] == "cap"
    assert "cap" in run("dlq", "list", "--url", url).stdout
    assert isinstance(run("status", "--url", url, token="wrong").exception, AuthError)
    assert isinstance(run("status", "--url", "http://127.0.0.1:1").exception, ConnectError)
