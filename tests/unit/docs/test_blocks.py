"""Every block of commands in a document is run by a test, or says why it is not."""

from __future__ import annotations

import re

import pytest

from tests.documents import PAGES, ROOT, Block, blocks

SHOWN = [each for page in PAGES for each in blocks(page) if each.language in ("sh", "console")]
TESTS = [ROOT / "tests/integration/documents", ROOT / "tests/acceptance/test_documents.py"]
CALL = re.compile(r"""block\((page|"[^"]+"), "([^"]+)"\)""")


def asked_for() -> set[str]:
    """The first commands of the blocks that tests run."""
    files = [file for path in TESTS for file in ([path] if path.is_file() else path.glob("test_*.py"))]
    return {first for file in files for _, first in CALL.findall(file.read_text(encoding="utf-8"))}


def is_asked_for(shown: Block) -> bool:
    return any(shown.commands[0].startswith(first) for first in asked_for())


RUN = {command for shown in SHOWN if not shown.not_run and is_asked_for(shown) for command in shown.commands}


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: f"{shown.page}: {shown.commands[0][:40]}")
def test_it_is_run_or_says_why_not(shown: Block) -> None:
    if shown.not_run:
        assert len(shown.not_run) > 15, "a reason, please"
        assert not is_asked_for(shown) or shown.commands[0] not in RUN, "a test runs it"
    else:
        missing = set(shown.commands) - RUN
        assert not missing, "run it in tests/integration/documents, or put <!-- not run: reason --> above it"


def test_tests_run_blocks_that_exist() -> None:
    assert len(asked_for()) > 15
    assert [first for first in asked_for() if not any(each.commands[0].startswith(first) for each in SHOWN)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is_written_in(page: str) -> None:
    assert [each.text for each in blocks(page) if not each.language] == []


@pytest.mark.parametrize("page", PAGES)
def test_reasons_name_tests_that_exist(page: str) -> None:
    named = [name for each in blocks(page) for name in re.findall(r"tests/[\w/]+\.py", each.not_run)]
    assert [name for name in named if not (ROOT / name).exists()] == []
