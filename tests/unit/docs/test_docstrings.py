"""Docstrings can be read alone: each module has one, and none needs its neighbour to be understood."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
# Each of them points at something that a reader who searched for the name does not see.
RIDDLE = re.compile(r"(The same|Who|Whoever|As|So many|Those|Soon|Nobody|It)\b")


def docstrings(module: Path) -> Iterator[tuple[str, str | None]]:
    """The names of a module, its own included, with their docstrings. Private ones are for those who read the code."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    yield "", ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node)


def test_every_module_has_a_docstring() -> None:
    assert len(MODULES) > 400
    assert [str(each.relative_to(SOURCE)) for each in MODULES if not next(docstrings(each))[1]] == []


def test_no_docstring_points_at_another_one() -> None:
    riddles = [
        f"{module.relative_to(SOURCE)} {name}: {text.splitlines()[0]}"
        for module in MODULES
        for name, text in docstrings(module)
        if text and RIDDLE.match(text)
    ]
    assert riddles == []
