"""What the buttons do. Every one is a form of a session that has logged in, and does what the HTTP interface does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headgate.control.pipelines import PipelineControl
from headgate.model import UsageError
from headgate.model.dead_letter import Selection

__all__ = ["ACTIONS", "explain"]

Fields = Mapping[str, str]
Action = Callable[[PipelineControl, str, Fields], str]
_MOST_ROWS = 100


def _order(order: str) -> Action:
    def act(control: PipelineControl, name: str, _: Fields) -> str:
        done = control.order(name, order)
        return f"{order} of {done['pipeline']} was ordered"

    return act


def _abandon(control: PipelineControl, name: str, fields: Fields) -> str:
    """The batch is the one that the person has seen: another one that fails since then is not given up."""
    done = control.abandon(name, _number(fields.get("batch", ""), "batch"))
    return f"batch {done['abandoned_batch']} of {done['pipeline']} is given up; its rows are lost"


def _replay(control: PipelineControl, name: str, fields: Fields) -> str:
    done = control.replay(name, _selection(fields))
    kept = sum(done["kept"].values())
    rest = f", {kept:,} stay: {', '.join(sorted(done['kept']))}" if kept else ""
    return f"{done['delivered']:,} dead letters of {name} were sent on{rest}"


def _purge(control: PipelineControl, name: str, fields: Fields) -> str:
    return f"{control.dead_letters(name).purge(_selection(fields)):,} dead letters of {name} were thrown away"


def _selection(fields: Fields) -> Selection:
    """One number, one reason, or all: an empty field chooses nothing."""
    number, reason = fields.get("number", ""), fields.get("reason") or None
    numbers = (_number(number, "number"),) if number else ()
    return Selection(numbers, reason, fields.get("all") == "yes")


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{name} is not a number: {text[:40]!r}", remedy="load the page again")
    return int(text)


# By the last part of the path: what it does, and the fields that its form may have.
ACTIONS: dict[str, tuple[Action, tuple[str, ...]]] = {
    **{order: (_order(order), ()) for order in ("pause", "resume", "restart")},
    "abandon": (_abandon, ("batch",)),
    "replay": (_replay, ("number", "reason", "all")),
    "purge": (_purge, ("number", "reason", "all")),
}


def explain(control: PipelineControl, name: str, text: str) -> dict[str, Any]:
    """Where rows would go: one JSON object a line, or a list of them. By the code of `headgate explain`."""
    return control.explain(name, _rows(text))


def _rows(text: str) -> list[dict[str, Any]]:
    remedy = 'write rows such as {"kind": "order"}, one a line'
    try:
        rows = [json.loads(text)] if text.lstrip()[:1] in ("[", "{") else []
        rows = rows[0] if rows and isinstance(rows[0], list) else rows
    except ValueError:
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise UsageError(f"not JSON: {error}", remedy=remedy) from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError("a row is a JSON object", remedy=remedy)
    if len(rows) > _MOST_ROWS:
        raise UsageError(f"more than {_MOST_ROWS} rows", remedy="use the command: headgate explain")
    return rows
