"""What documents and remedies name exists: commands and their options. `make docs` looks at the links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from headgate.cli.app import app

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SOURCES = sorted((ROOT / "src" / "headgate").rglob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"^(?:\$ )?(?:[\w/.-]+=\S+ )*(?:\.venv/bin/|exec )?headgate (.*)$")
TOLD = re.compile(r"(?:`|run |with: |see: |try: )headgate ([a-z][a-z-]*(?: [a-z-]+)?)")
ROOT_COMMAND: Any = typer.main.get_command(app)


def calls(page: Path) -> Iterator[str]:
    for _, block in FENCE.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if found := CALL.match(line.strip()):
                yield re.split(r" (?:#|\||>|<|&&|;)", " " + found[1] + " ")[0].strip()


def check(words: list[str]) -> None:
    """Commands and options of a call exist."""
    command, rest = ROOT_COMMAND, list(words)
    while rest and (commands := getattr(command, "commands", None)) is not None and not rest[0].startswith("-"):
        assert rest[0] in commands, rest[0]
        command = commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h", "--install-completion", "--show-completion"}
    for word in rest:
        if word.startswith("-") and not re.fullmatch(r"-\d+", word):
            assert word.partition("=")[0] in known, word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_blocks_exist(page: Path) -> None:
    for call in calls(page):
        if "COMMAND" in call:
            continue
        check(shlex.split(call.replace("...", "")))


def test_commands_are_found_in_pages() -> None:
    assert sum(1 for page in PAGES for _ in calls(page)) > 40


def test_commands_that_remedies_name_exist() -> None:
    """Of a message only the command and its subcommand are looked at: what follows are placeholders."""
    named = {(path, call) for path in SOURCES for call in TOLD.findall(path.read_text())}
    assert len(named) > 20
    for path, call in sorted(named):
        first, _, second = call.partition(" ")
        assert first in ROOT_COMMAND.commands, (path.name, call)
        group = getattr(ROOT_COMMAND.commands[first], "commands", None)
        assert group is None or not second or second in group or second.isupper() or second == "--help", (
            path.name,
            call,
        )
