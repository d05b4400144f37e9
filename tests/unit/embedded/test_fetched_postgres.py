"""Servers for tests that Maven fetches: where they cannot be had, it is said why."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import postgres
from tests.servers import start


def test_a_server_that_cannot_be_had_skips_the_test_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"no PostgreSQL 14 here: .*apt-get install maven"):
        start("14", tmp_path)


def test_a_server_for_another_kind_of_machine_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match="x86_64 only"):
        postgres.installation(17)
