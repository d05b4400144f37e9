"""`headgate eventlog`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.eventlog import Entry, LogWriter
from headgate.model import UsageError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["eventlog", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_show_says_what_there_is(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all([Entry(1, 1, b"x" * 72)] * 3)
    told = json.loads(run("show", "--path", str(tmp_path), "--json"))
    assert told == {"path": str(tmp_path), "oldest": 1, "last": 3, "segments": 1, "bytes": 312}


def test_a_log_is_found_by_its_destination(tmp_path: Path) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(
        """
        [project]
        data_dir = "data"
        [sources.r]
        type = "random"
        [destinations.e]
        type = "eventlog"
        path = "here"
        [pipelines.p]
        source = "r"
        topic = "t"
        destinations = ["e"]
        """
    )
    shown = run("show", "--config", str(config))
    assert str(tmp_path / "data" / "here") in shown.replace("\n", "")
    with pytest.raises(UsageError, match="which event log"):
        run("show", "other", "--config", str(config))


def test_what_others_can_reach_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="token is required"):
        run("serve", "--path", str(tmp_path), "--host", "0.0.0.0")
