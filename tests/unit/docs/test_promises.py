"""The documents name the tests that prove them; those tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"\b(test_\w+\.py)(?:::(test_\w+))?")
FILES = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_the_tests_that_a_document_names_exist(document: Path) -> None:
    named = NAMED.findall(document.read_text())
    missing = [f"{file}::{test}" for file, test in named if not _exists(file, test)]
    assert missing == []


def test_every_way_to_break_change_data_capture_has_its_test() -> None:
    text = (ROOT / "docs" / "cdc.md").read_text()
    section = text.partition("## When things break\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if not NAMED.search(row)] == []


def _exists(file: str, test: str) -> bool:
    return file in FILES and (not test or f"def {test}(" in FILES[file].read_text())
