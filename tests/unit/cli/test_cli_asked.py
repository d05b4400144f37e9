"""Which command's module is imported: by how the program was started."""

from __future__ import annotations

import pytest

from headgate.cli.app import _asked


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["/usr/bin/headgate", "--debug", "run"], "run"),
        (["/x/site-packages/headgate/__main__.py", "status"], "status"),
        (["/usr/bin/headgate"], ""),
        (["/x/site-packages/pytest/__main__.py", "tests/unit"], None),
        (["/usr/bin/pytest", "tests"], None),
    ],
)
def test_the_command_that_was_asked_for(argv: list[str], asked: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMP_WORDS", raising=False)
    monkeypatch.setattr("sys.argv", argv)
    assert _asked() == asked
