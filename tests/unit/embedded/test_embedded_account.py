"""Who runs PostgreSQL: the decisions that need no server. The real thing is in the integration tests."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from headgate.embedded.account import Account, choose_account
from headgate.model import DependencyError

PROGRAM = Path("/bin/echo")


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_an_ordinary_user_needs_no_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert choose_account(tmp_path / "data", tmp_path, PROGRAM) == Account(1234, os.getegid(), ())


@pytest.mark.usefixtures("as_root")
def test_root_needs_setpriv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DependencyError, match="setpriv") as caught:
        choose_account(tmp_path / "data", tmp_path, PROGRAM)
    assert "util-linux" in caught.value.remedy


@pytest.mark.usefixtures("as_root")
def test_root_needs_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody_here(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", nobody_here)
    with pytest.raises(DependencyError, match="nobody, postgres, daemon") as caught:
        choose_account(tmp_path / "data", tmp_path, PROGRAM)
    assert "ordinary user" in caught.value.remedy


@pytest.mark.usefixtures("as_root")
def test_a_setpriv_that_cannot_do_it_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setpriv = tmp_path / "setpriv"
    setpriv.write_text("#!/bin/sh\necho 'setresuid failed' >&2\nexit 1\n")
    setpriv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DependencyError, match="setresuid failed") as caught:
        choose_account(tmp_path / "data", tmp_path, PROGRAM)
    assert "CAP_DAC_READ_SEARCH" in caught.value.remedy
