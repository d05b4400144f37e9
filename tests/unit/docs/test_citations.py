"""Codecs of protocols that others have written say which specification they follow."""

from __future__ import annotations

import re
from pathlib import Path

WIRE = Path(__file__).parents[3] / "src" / "headgate" / "wire"
FOREIGN = ("atproto", "kafka", "nats", "pgoutput", "pgtypes", "webhook")
OURS = {  # what headgate itself has laid down
    "atproto/logged.py",
    "kafka/refusal.py",
    "nats/fragments.py",
    "pgoutput/transactions.py",
}
CITED = re.compile(r"Specification:|RFC \d{4}|KIP-\d|ADR-\d|AT Protocol|protocol guide")


def test_every_module_of_a_foreign_protocol_cites_it() -> None:
    modules = [path for package in FOREIGN for path in (WIRE / package).rglob("*.py") if path.name != "__init__.py"]
    silent = {str(path.relative_to(WIRE)) for path in modules if not CITED.search(path.read_text(encoding="utf-8"))}
    assert silent == OURS
