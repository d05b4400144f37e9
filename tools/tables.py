"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["code", "page", "table"]


def page(title: str, made_from: str, *parts: str) -> str:
    """Return a generated page: its title, a remark on where it comes from, and its parts."""
    remark = f"<!-- Made by `make reference` from {made_from}. Changes belong there. -->"
    return "\n\n".join([f"# {title}", remark, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; nothing if there are no rows. A bar within a cell is escaped."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(columns), "|" + "---|" * len(columns), *lines]) if lines else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Return `text` as code; nothing for nothing."""
    return f"`{text}`" if text else ""
