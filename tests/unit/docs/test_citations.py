"""Codecs of protocols that others have written say which specification they follow."""

from __future__ import annotations

import ast
from pathlib import Path

WIRE = Path(__file__).parents[3] / "src" / "headgate" / "wire"
FOREIGN = ("atproto", "kafka", "nats", "pgoutput", "pgtypes")


def test_every_package_of_a_foreign_protocol_cites_it() -> None:
    for package in FOREIGN:
        texts = [ast.get_docstring(ast.parse(path.read_text())) or "" for path in (WIRE / package).glob("*.py")]
        assert sum("Specification:" in text for text in texts) > 1, package
