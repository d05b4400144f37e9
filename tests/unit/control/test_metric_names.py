"""Every metric is named in one module: whoever looks for a name finds it there, and nowhere a second spelling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headgate
from headgate.model import metric_names

SOURCE = Path(headgate.__file__).parent
NAMES = {name: value for name, value in vars(metric_names).items() if name.isupper()}
METRICS = {value for name, value in NAMES.items() if not name.endswith("_LABEL")}


def _texts(path: Path) -> Iterator[str]:
    """Every literal of a module, those inside f-strings too, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, described) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def test_no_other_module_spells_the_name_of_a_metric() -> None:
    found = [
        (str(path.relative_to(SOURCE)), text)
        for path in SOURCE.rglob("*.py")
        if path != Path(metric_names.__file__)
        for text in _texts(path)
        if any(re.search(rf"\b{name}", text) for name in METRICS if name in text)
        or text.startswith(("headgate_gateway_", "headgate_broker_", "headgate_relay_"))
    ]
    assert found == []


def test_names_are_as_prometheus_wants_them() -> None:
    assert len(METRICS) == len([name for name in NAMES if not name.endswith("_LABEL")])  # none twice
    for name in METRICS:
        assert re.fullmatch(r"headgate(_[a-z]+)+", name), name
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_kb")), name


def test_every_name_is_used() -> None:
    used = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    assert [name for name in NAMES if not re.search(rf"names\.{name}\b", used)] == []
