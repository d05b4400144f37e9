"""The table of APIs in docs/gateway.md, made from what the gateway serves.

python -m tests.gateway.table       writes it anew
"""

from __future__ import annotations

from pathlib import Path

from headgate.gateway.access import RIGHTS, Rights
from headgate.gateway.handlers import HANDLERS
from headgate.gateway.handlers.session import first_offered
from headgate.wire.kafka import APIS

__all__ = ["DOCUMENT", "api_table", "with_table"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "gateway.md"
BEGIN, END = "<!-- apis: made by python -m tests.gateway.table -->\n", "<!-- end of apis -->\n"


def api_table() -> str:
    """One row for every API, by its key."""
    rows = [
        f"| {api.name} | {api.key} | {_versions(first_offered(api), api.last)} | {_rights(RIGHTS[api.request])} |\n"
        for api in APIS.values()
        if api.request in HANDLERS
    ]
    return "| API | key | versions | right |\n|---|---|---|---|\n" + "".join(rows)


def _rights(rights: Rights) -> str:
    return f"{rights}; {rights.note}" if rights.note else str(rights)


def _versions(first: int, last: int) -> str:
    return str(last) if first == last else f"{first} to {last}"


def with_table(text: str) -> str:
    """The document with the table as it should be."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + api_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
