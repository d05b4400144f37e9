"""Rows that cannot be written as events: a gap marker stands in their place, and they are kept with the reason.

The marker has the row's own message id and its place in the transaction, so nothing behind it moves. What is kept is
for people: the row as JSON, with values that are no text as PostgreSQL prints bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from headgate.kernels.changes.gaps import Filled
from headgate.model import HeadgateError
from headgate.model.address import Address
from headgate.model.dead_letter import UNREADABLE, DeadLetter
from headgate.wire.envelope import GAP_PREFIX, Event, Operation
from headgate.wire.pgoutput import UNCHANGED, Relation, Row

__all__ = ["SetAside", "letter_of", "marker_of", "with_rows"]

SetAside: TypeAlias = Callable[[Sequence[DeadLetter]], object]  # keeps them durably


def marker_of(event: Event, error: HeadgateError) -> Event:
    """The message that consumers get in place of an event."""
    relation = event.relation
    content = json.dumps(
        {
            "reason": "value",
            "tables": [[relation.schema, relation.name]] if relation else None,
            "message": f"a row could not be sent: {error}",
        }
    )
    detail: dict[str, bool | str | bytes] = {"prefix": GAP_PREFIX, "content": content.encode(), "transactional": True}
    return replace(event, operation=Operation.MESSAGE, relation=None, data=(), old=None, detail=detail)


def letter_of(event: Event, error: HeadgateError, origin: str, position: str, subject: str) -> DeadLetter:
    """What is kept of an event."""
    shown = {
        "schema": event.relation.schema if event.relation else None,
        "table": event.relation.name if event.relation else None,
        "operation": event.operation.value,
        "xid": event.xid,
        "data": _shown(event.relation, event.data),
        "old": None if event.old is None else _shown(event.relation, event.old),
    }
    payload = json.dumps(shown, ensure_ascii=False).encode()
    wanted = Address("", subject)
    return DeadLetter(f"{origin}-{position}", "", wanted, UNREADABLE, position, payload, error=str(error))


def _shown(relation: Relation | None, row: Row) -> dict[str, str | None]:
    names = [column.name for column in relation.columns] if relation else []
    return {
        name: None if value is None else _text(value)
        for name, value in zip(names, row, strict=False)
        if value is not UNCHANGED
    }


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "\\x" + value.hex()


def with_rows(filled: Filled, rows: dict[int, bytes]) -> Filled:
    """Texts with those of some rows replaced."""
    view, ends = memoryview(filled.text), filled.ends.copy()
    parts: list[bytes | memoryview] = []
    taken = 0
    for row, text in sorted(rows.items()):
        start, end = int(filled.ends[row - 1]) if row else 0, int(filled.ends[row])
        parts += (view[taken:start], text)
        taken = end
        ends[row:] += len(text) - (end - start)
    parts.append(view[taken:])
    return Filled(b"".join(parts), ends)
