"""The packages keep to the house: standard library and msgspec only, and exactly the public names they promise."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

PACKAGES = ["headgate.wire.pgoutput", "headgate.wire.pgtypes", "headgate.wire.envelope"]


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_are_sorted_and_there(name: str) -> None:
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(hasattr(package, public) for public in package.__all__)
    imported = {key for key, value in vars(package).items() if getattr(value, "__module__", "").startswith("headgate")}
    assert {key for key in imported if not key.startswith("_")} <= set(package.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_imports_are_standard_library_msgspec_and_model(name: str) -> None:
    package = importlib.import_module(name)
    allowed = ("headgate.model", "headgate.wire")
    for path in Path(str(package.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                known = module == "msgspec" or module.split(".")[0] in sys.stdlib_module_names
                assert module.startswith(allowed) or known, (path, module)
